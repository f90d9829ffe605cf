"""Algorithms that learn from the data of the present policy."""
