"""Generated matrix products: packed operands, register tiles, tiles chosen by shape."""
