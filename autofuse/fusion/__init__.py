"""What a fusion is: atoms, candidates, legality, partition."""
