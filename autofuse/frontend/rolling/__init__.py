"""Python's loops and branches over traced arrays as loops and branches of the graph."""
