"""What a kernel costs on a CPU: features as its code will be, the analytical model, the calibration."""
