"""PPO learns small worlds with known answers, in seconds."""

from collections.abc import Callable


def test_learned(check: Callable[[], None]) -> None:
    check()
