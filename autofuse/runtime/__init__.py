"""Memory planning, scheduling and the executable."""
