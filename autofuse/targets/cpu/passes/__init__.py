"""Rewrites from TileProgram to TileProgram, before code is written."""
