"""Storages for learning models of the environment."""
