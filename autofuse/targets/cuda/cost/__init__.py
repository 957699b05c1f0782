"""What kernels cost on a GPU."""
