"""Every space that is supported goes in and out unharmed; every other one is refused by name."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.agent.env.toys import Spaces

from pytorchrl import SpaceError
from pytorchrl.agent.env.actions import ActionFormat
from pytorchrl.agent.env.formats import ObservationFormat
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.policy import space_from_json, space_to_json
from pytorchrl.tree import leaves

OBSERVATIONS: list[tuple[gym.Space[Any], Any, str]] = [
    (spaces.Box(-1, 1, (3,), np.float32), (3,), "float32"),
    (spaces.Box(-1, 1, (3,), np.float64), (3,), "float32"),
    (spaces.Box(-np.inf, np.inf, (2, 5), np.float64), (2, 5), "float32"),
    (spaces.Box(-1, 1, (), np.float32), (1,), "float32"),
    (spaces.Box(-1, 1, (3,), np.float16), (3,), "float16"),
    (spaces.Box(0, 9, (3,), np.int32), (3,), "int32"),
    (spaces.Box(0, 255, (10, 12, 3), np.uint8), (3, 10, 12), "uint8"),
    (spaces.Box(0, 255, (4, 84, 84), np.uint8), (4, 84, 84), "uint8"),
    (spaces.Box(0, 255, (84, 84), np.uint8), (84, 84), "uint8"),
    (spaces.Box(0, 1, (7, 7, 3), np.float32), (3, 7, 7), "float32"),
    (spaces.Discrete(5), (5,), "float32"),
    (spaces.Discrete(3, start=-1), (3,), "float32"),
    (spaces.MultiDiscrete([2, 3]), (5,), "float32"),
    (spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, -5]]), (11,), "float32"),
    (spaces.MultiBinary(4), (4,), "float32"),
    (spaces.MultiBinary((2, 3)), (2, 3), "float32"),
]
ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([2, 3], start=[4, -1]),
    spaces.MultiBinary(4),
    *(
        spaces.Box(np.array([-0.1, 0.3]), np.array([0.1, 0.7]), dtype=kind)
        for kind in (np.float16, np.float32, np.float64)
    ),
    spaces.Box(-2, 2, (2, 2), np.float32),
]


@pytest.mark.parametrize("backend", ["sync", "vector"])
@pytest.mark.parametrize(("space", "shape", "dtype"), OBSERVATIONS, ids=str)
def test_observations(space: gym.Space[Any], shape: tuple[int, ...], dtype: str, backend: str) -> None:
    makers = [partial(Spaces, space)] * 2
    made = makers[0] if backend == "sync" else lambda: gym.vector.SyncVectorEnv(makers)
    envs = VecEnv(made, 2, backend=backend)
    assert isinstance(envs.observation_space, spaces.Box)
    assert envs.observation_space.shape == shape
    for obs in (envs.reset([1, 2]), envs.step(torch.zeros(2, 1, dtype=torch.int64))[0]):
        assert obs.shape == (2, *shape)
        assert str(obs.numpy().dtype) == dtype
        for row in obs.numpy():
            assert row in envs.observation_space
    if backend == "sync":
        for env, row in zip(envs.backend.envs, obs, strict=True):  # type: ignore[attr-defined]
            expected = spaces.flatten(space, env.observation)
            if len(shape) == 3 and shape[0] == 3:
                expected = env.observation.transpose(2, 0, 1)
            np.testing.assert_array_equal(row.numpy().reshape(-1), expected.astype(dtype).reshape(-1))
    assert space_from_json(space_to_json(space)) == space


@pytest.mark.parametrize("backend", ["sync", "async", "vector"])
def test_dicts_and_tuples_travel_as_dicts(backend: str) -> None:
    parts = dict(enumerate(space for space, *_ in OBSERVATIONS[:12:3]))
    named = spaces.Dict({f"part {k}": space for k, space in parts.items()})
    unnamed = spaces.Tuple(list(parts.values()))
    for space in (named, unnamed):
        makers = [partial(Spaces, space)] * 2
        made = makers[0] if backend != "vector" else partial(gym.vector.SyncVectorEnv, makers)
        envs = VecEnv(made, 2, backend=backend)
        names = list(named.spaces) if space is named else ["0", "1", "2", "3"]
        try:
            assert list(envs.observation_space.spaces) == names  # type: ignore[attr-defined]
            for obs in (envs.reset([1, 2]), envs.step(torch.zeros(2, 1, dtype=torch.int64))[0]):
                assert list(obs) == names
                for row in range(2):
                    one = {name: value[row].numpy() for name, value in obs.items()}
                    assert one in envs.observation_space
            assert list(envs.reset_single_env(1)) == names
        finally:
            envs.close()
        assert space_from_json(space_to_json(space)) == space


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Text(5), "Text"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph"),
        (spaces.Dict(inner=spaces.Dict(x=spaces.Discrete(2))), "'inner'.*nested"),
        (spaces.Dict(mission=spaces.Text(5), x=spaces.Discrete(2)), "'mission' Text"),
        (spaces.Tuple([spaces.Discrete(2), spaces.OneOf([spaces.Discrete(2)])]), "'1' OneOf"),
    ],
    ids=str,
)
def test_other_observations_are_refused_by_name(space: gym.Space[Any], named: str) -> None:
    for backend in ("sync", "async"):
        with pytest.raises(SpaceError, match=rf"observation space .*{named}") as caught:
            VecEnv(partial(Spaces, space), 2, backend=backend)
        assert "MultiBinary" in caught.value.fix


@pytest.mark.parametrize("backend", ["sync", "async", "vector"])
@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_actions(space: gym.Space[Any], backend: str) -> None:
    if backend == "async" and space not in (ACTIONS[1], ACTIONS[3], ACTIONS[-2]):
        return  # the same code in another process
    makers = [partial(Spaces, spaces.Discrete(2), space)] * 3
    made = makers[0] if backend != "vector" else partial(gym.vector.SyncVectorEnv, makers)
    envs = VecEnv(made, 3, backend=backend)
    try:
        envs.reset([1, 2, 3])
        width = envs.backend.actions.width
        low, high = extremes(space, width)
        for row in (low, high):
            envs.step(torch.stack([row] * 3))  # the environment asserts that they are its own
    finally:
        envs.close()
    assert space_from_json(space_to_json(space)) == space


def extremes(space: gym.Space[Any], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and the largest action, as an actor has them."""
    if isinstance(space, spaces.Box):
        low, high = (torch.as_tensor(bound, dtype=torch.float32).reshape(-1) for bound in (space.low, space.high))
        return low, high
    zeros = torch.zeros(width, dtype=torch.int64)
    if isinstance(space, spaces.Discrete):
        return zeros, zeros + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return zeros, torch.as_tensor(space.nvec.reshape(-1)) - 1
    return zeros.float(), zeros.float() + 1


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Box(np.array([0.0, 1.0]), np.array([1.0, 1.0]), dtype=np.float32),
        spaces.Box(0, 5, (2,), np.int32),
        spaces.Text(3),
        spaces.Dict(x=spaces.Discrete(2)),
        spaces.Tuple([spaces.Discrete(2)]),
    ],
    ids=str,
)
def test_other_actions_are_refused_by_name(space: gym.Space[Any]) -> None:
    with pytest.raises(SpaceError, match="action space"):
        VecEnv(partial(Spaces, spaces.Discrete(2), space), 1)


def test_one_hot_positions() -> None:
    for space, value, expected in [
        (spaces.Discrete(4, start=2), 3, [0, 1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
    ]:
        form = ObservationFormat(space)
        rows = form.empty(2)
        form.write(rows, 1, value)
        assert rows[0].tolist() == [[0] * len(expected), expected]
        assert form.batch(np.stack([value, value]))[0].tolist() == [expected, expected]


def test_discrete_actions_are_whole_numbers_of_the_space() -> None:
    form = ActionFormat(spaces.Discrete(3, start=5))
    assert form.convert(np.array([[0], [2]])) == [5, 7]


def test_spaces_of_all_environments_have_to_agree() -> None:
    def make(index_env: int) -> gym.Env[Any, Any]:
        return Spaces(spaces.Discrete(2 + index_env))

    for options in ({"backend": "sync"}, {"backend": "async", "workers": 2}, {"backend": "async", "workers": 1}):
        with pytest.raises(Exception, match=r"environment 1 .*other spaces"):
            VecEnv(make, 2, **options)  # type: ignore[arg-type]


def test_leaves_of_a_tree_share_the_rows() -> None:
    envs = VecEnv(partial(Spaces, spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(3))), 4)
    assert {len(tensor) for tensor in leaves(envs.reset())} == {4}
