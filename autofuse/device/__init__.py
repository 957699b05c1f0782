"""Device descriptions (data) and detection."""
