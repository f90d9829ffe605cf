"""The agent's parts: actors, algorithms, storages and environments."""
