"""Compiled code: linking it into this process, calling it, keeping it between processes."""
