"""Algorithms that learn from replayed data of earlier policies."""
