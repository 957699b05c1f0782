"""Partitions written down as plans, within a limit on memory."""
