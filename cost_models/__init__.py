"""Cost models: what a kernel costs on a device, predicted without running it."""
