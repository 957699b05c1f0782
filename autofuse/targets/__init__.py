"""Code generation and execution per kind of device."""
