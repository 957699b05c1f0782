"""What other people add to the search: found by name, and checked."""
