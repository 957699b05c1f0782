"""Imports every family so that its ops are registered."""
