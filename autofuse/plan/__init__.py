"""Fusion plans: document, codec, identity, store."""
