"""The public face: trace, compile, tune, load, jit, and the Plan they return."""
