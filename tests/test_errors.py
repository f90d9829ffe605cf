"""The exception family: what it says, how it travels, and the nearest known name."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import pytorchrl as prl
from pytorchrl.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    NonFiniteError,
    RLError,
    SpaceError,
    WorkerLostError,
    suggestion,
)

FAMILY = {
    RLError: 1,
    ConfigError: 2,
    SpaceError: 2,
    EnvError: 1,
    NonFiniteError: 1,
    WorkerLostError: 1,
    CheckpointError: 1,
}


@pytest.mark.parametrize(("kind", "code"), FAMILY.items())
class TestFamily:
    def test_kinship(self, kind: type[RLError], code: int) -> None:
        assert issubclass(kind, RLError)
        assert kind.exit_code == code
        assert issubclass(kind, ValueError) == (code == 2)
        assert getattr(prl, kind.__name__) is kind

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            (("what",), "what"),
            (("what", "fix"), "what\nfix"),
            (("what", "fix", "who"), "who: what\nfix"),
            (("what", "", "", "when"), "when: what"),
            (("what", "fix", "who", "when"), "who, when: what\nfix"),
        ],
    )
    def test_what_it_says(self, kind: type[RLError], code: int, fields: tuple[str, ...], text: str) -> None:
        error = kind(*fields)
        assert str(error) == text
        assert (error.what, error.fix, error.who, error.when) == (*fields, "", "", "", "")[:4]

    def test_it_can_be_given_by_name(self, kind: type[RLError], code: int) -> None:
        assert str(kind(what="a", when="c", who="b", fix="d")) == "b, c: a\nd"

    def test_it_is_copied_whole(self, kind: type[RLError], code: int) -> None:
        error = kind("what", "fix", "who", "when")
        for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert type(twin) is kind
            assert twin.args == error.args
            assert str(twin) == str(error)


def fail(kind: type[RLError]) -> None:
    raise kind("what", "fix", "who", "when")


def test_it_crosses_processes() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(fail, kind) for kind in FAMILY]
        for future, kind in zip(futures, FAMILY, strict=True):
            error = future.exception(timeout=60)
            assert type(error) is kind
            assert str(error) == "who, when: what\nfix"


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [
        ("gama", ["gamma", "lambda"], "Did you mean 'gamma'?"),
        ("GAMMA", ["gamma", "x"], "Did you mean 'gamma'?"),
        ("ppo", ["PPO", "DDPG"], "Did you mean 'PPO'?"),
        ("enviroment", ["env", "run"], "Did you mean 'env'?"),
        ("hidden", ["hidden_layer_sizes_of_the_network", "x"], "Did you mean 'hidden_layer_sizes_of_the_network'?"),
        ("zzz", ["b", "a"], "Known: a, b."),
        ("", ["b", "a"], "Known: a, b."),
        ("zzz", [], ""),
        ("zzz", [f"a{i:02}" for i in range(12)], f"Known: {', '.join(f'a{i:02}' for i in range(12))}."),
        ("zzz", [f"a{i:02}" for i in range(13)], f"Known: {', '.join(f'a{i:02}' for i in range(12))}, … (13 in all)."),
    ],
)
def test_suggestion(name: str, known: list[str], sentence: str) -> None:
    assert suggestion(name, known) == sentence
