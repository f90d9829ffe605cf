"""Replay: storages that off-policy algorithms draw from."""
