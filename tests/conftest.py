"""Shared by all tests: no chance, no clock, one thread."""

import torch
from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None)
settings.load_profile("deterministic")

# Two spinning teams of threads on two cores are slower than one thread by orders of magnitude.
torch.set_num_threads(1)
