"""Graphs that clean-up can give, and which of them is planned."""
