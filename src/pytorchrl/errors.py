"""The one exception family: everything that pytorchrl raises on purpose, and what it says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RLError(Exception):
    """An error that names what happened and how to fix it, and, where known, who and when.

    All fields are positional ``args``, so that the error survives the trip between processes.

    Parameters
        what: operation, field, value, and what was expected.
        fix: one sentence that can be acted on.
        who: role, worker, environment index, environment id.
        when: environment step, episode step, update.
    """

    exit_code = 1

    def __init__(self, what: str, fix: str = "", who: str = "", when: str = "") -> None:
        super().__init__(what, fix, who, when)

    @property
    def what(self) -> str:
        return str(self.args[0])

    @property
    def fix(self) -> str:
        return str(self.args[1])

    @property
    def who(self) -> str:
        return str(self.args[2])

    @property
    def when(self) -> str:
        return str(self.args[3])

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.who, self.when) if part)
        first = f"{where}: {self.what}" if where else self.what
        return f"{first}\n{self.fix}" if self.fix else first


class ConfigError(RLError, ValueError):
    """A file, flag, name, value or size that cannot work."""

    exit_code = 2


class SpaceError(ConfigError):
    """Algorithm, actor and spaces do not fit together."""


class EnvError(RLError):
    """The environment raised, hung, or broke its own API."""


class NonFiniteError(RLError):
    """NaN or infinity, stopped before it did harm."""


class WorkerLostError(RLError):
    """A process or node is gone and its budget of restarts is spent."""


class CheckpointError(RLError):
    """A checkpoint that is missing, damaged, foreign or cannot be written."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The sentence that names the nearest known name, or all of them when there are few."""
    names = sorted(known)
    folded = {candidate.lower(): candidate for candidate in names}
    word = name.lower()
    near = difflib.get_close_matches(word, folded, n=1, cutoff=0.6)
    if not near and len(word) > 1:
        near = [candidate for candidate in folded if len(candidate) > 1 and word.startswith(candidate)]
        near += [candidate for candidate in folded if candidate.startswith(word)]
    if near:
        return f"Did you mean '{folded[near[0]]}'?"
    if not names:
        return ""
    if len(names) <= 12:
        return f"Known: {', '.join(names)}."
    return f"Known: {', '.join(names[:12])}, … ({len(names)} in all)."
