"""Timing: worker process, checks, record database."""
