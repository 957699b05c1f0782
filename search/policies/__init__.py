"""Policies: each turns a program into a partition."""
