"""From a fusion candidate to a TileProgram."""
