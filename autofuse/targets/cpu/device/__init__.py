"""The CPU this process runs on: what it is, and how fast its parts are."""
