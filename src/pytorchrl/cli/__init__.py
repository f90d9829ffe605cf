"""The program: thin commands over what can be imported."""

from pytorchrl.cli.main import entry_point, main

__all__ = ["entry_point", "main"]
