"""A target made of public pieces: it evaluates TilePrograms, and its clock counts their work at made-up throughputs."""
