"""Rewrites of TilePrograms for GPUs, before code is generated."""
