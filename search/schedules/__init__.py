"""Schedules of kernels: proposed, tried, and shown."""
