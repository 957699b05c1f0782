"""The candidate space: which kernels there could be."""
