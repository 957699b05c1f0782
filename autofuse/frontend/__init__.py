"""Front ends: turn programs into graphs."""
