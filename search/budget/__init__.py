"""What a tuning run may use, and what it keeps for its end."""
