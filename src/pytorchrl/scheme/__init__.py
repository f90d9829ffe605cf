"""Where collection, gradients and updates run."""

from pytorchrl.scheme.scheme import Scheme

__all__ = ["Scheme"]
