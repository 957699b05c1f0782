"""The CUDA backend: CUDA C, NVRTC, launch."""
