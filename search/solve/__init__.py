"""The cheapest cover of a program's outputs, and an order in which it runs."""
