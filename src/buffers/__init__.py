"""Replay buffer definitions, for storing past data for learning."""
