"""Algorithms that learn a world model and plan with it."""
