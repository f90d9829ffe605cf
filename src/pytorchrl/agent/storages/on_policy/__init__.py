"""Storages of one rollout."""
