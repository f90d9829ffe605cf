"""An extension of Griffe, which reads docstrings for the documentation: our Parameters block in its own spelling."""

from __future__ import annotations

from typing import Any

import griffe


class ParametersBlock(griffe.Extension):
    """``Parameters`` stands alone on its line here; Google's style, which is read, has a colon behind it."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring is not None:
            cls.docstring.value = cls.docstring.value.replace("\nParameters\n", "\nParameters:\n")
