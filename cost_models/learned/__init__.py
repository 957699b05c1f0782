"""Learned cost models: a bounded correction of an analytical model, trained by scikit-learn and predicted by NumPy."""
