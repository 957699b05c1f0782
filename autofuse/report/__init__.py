"""Explain, profile and pictures: data builders and renderers."""
