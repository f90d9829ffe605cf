"""Reinforcement learning in PyTorch: swappable agents, one process or many, exactly resumable."""
