"""Clean-up passes that run before fusion."""
