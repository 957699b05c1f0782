"""Kernels measured on other machines, through workers of Dask distributed."""
