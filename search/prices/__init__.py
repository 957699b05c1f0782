"""What kernels cost: the model's prices, corrected by what was measured."""
