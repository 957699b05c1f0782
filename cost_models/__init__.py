"""Cost models: protocol, features, analytical model, calibration."""
