"""Policy: predictions for an environment's own observations, from every kind of actor, and back from its files."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tests.agent.actors.conftest import ACTIONS

from pytorchrl.agent.actors import OffPolicyActor, OnPolicyActor
from pytorchrl.agent.env.formats import ObservationFormat
from pytorchrl.policy import Policy, load_policy, save_files

# As environments have them: images with channels last, whole numbers.
OBSERVATIONS: dict[str, gym.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float64),
    "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "dict": spaces.Dict({"pixels": spaces.Box(0, 255, (12, 12, 3), np.uint8), "speed": spaces.Box(-1.0, 1.0, (2,))}),
}
GRU = {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 8}}


def policy_of(observation: str, action: str, algorithm: str, **config: Any) -> Policy:
    name = "OnPolicyActor" if algorithm == "PPO" else "OffPolicyActor"
    kind: Any = {"OnPolicyActor": OnPolicyActor, "OffPolicyActor": OffPolicyActor}[name]
    space = OBSERVATIONS[observation]
    actor = kind("cpu", ObservationFormat(space).space, ACTIONS[action], algorithm, **config)
    return Policy(actor, {"algorithm": algorithm, "actor": {"name": name, "config": config}}, space)


def batch_of(space: gym.Space[Any], count: int) -> Any:
    space.seed(0)
    drawn = [space.sample() for _ in range(count)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([obs[key] for obs in drawn]) for key in drawn[0]}, drawn
    return np.stack(drawn), drawn


@pytest.mark.parametrize("memory", [{}, GRU])
@pytest.mark.parametrize(
    ("algorithm", "action"),
    [("PPO", "box"), ("PPO", "multidiscrete"), ("PPO", "multibinary"), ("SAC", "box"), ("DDQN", "discrete")],
)
@pytest.mark.parametrize("observation", list(OBSERVATIONS))
def test_one_observation_and_a_batch_of_them(
    observation: str, action: str, algorithm: str, memory: dict[str, Any]
) -> None:
    policy = policy_of(observation, action, algorithm, **memory)
    batch, drawn = batch_of(OBSERVATIONS[observation], 3)
    actions, state = policy.predict(batch)
    assert len(actions) == 3
    singles = [policy.predict(obs)[0] for obs in drawn]
    for alone, together in zip(singles, actions, strict=True):
        assert ACTIONS[action].contains(alone)
        np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    assert policy.value(batch).shape == (3,)
    assert policy.value(drawn[0]) == pytest.approx(policy.value(batch)[0], abs=1e-5)
    policy.predict(batch, state, deterministic=False)


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_memory_goes_on_with_its_state_and_forgets_where_an_episode_begins(algorithm: str) -> None:
    policy = policy_of("vector", "box", algorithm, **GRU, policy_gain=5.0)
    batch, _ = batch_of(OBSERVATIONS["vector"], 2)
    first, state = policy.predict(batch)
    second, _ = policy.predict(batch, state)
    reset, _ = policy.predict(batch, state, done=[True, False])
    assert not np.allclose(first, second)
    np.testing.assert_allclose(reset[0], first[0], rtol=1e-5)
    np.testing.assert_allclose(reset[1], second[1], rtol=1e-5)


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
@pytest.mark.parametrize("observation", ["vector", "image"])
def test_a_policy_is_its_files(observation: str, algorithm: str, tmp_path: Path) -> None:
    policy = policy_of(observation, "box", algorithm, **GRU, normalize_observations=True, restart_model=None)
    batch, _ = batch_of(OBSERVATIONS[observation], 4)
    policy.actor.update_normalizer(policy._rows(batch)[0])
    save_files(tmp_path, policy.files())
    loaded = load_policy(tmp_path)
    np.testing.assert_array_equal(loaded.predict(batch)[0], policy.predict(batch)[0])
    for name, tensor in policy.actor.state_dict().items():
        assert tensor.equal(loaded.actor.state_dict()[name])
    # the same files are where another actor may start
    again = policy_of(observation, "box", algorithm, **GRU, normalize_observations=True, restart_model=str(tmp_path))
    np.testing.assert_array_equal(again.predict(batch)[0], policy.predict(batch)[0])
    save_files(tmp_path / "again", again.files())
    assert load_policy(tmp_path / "again").actor.state_dict().keys() == policy.actor.state_dict().keys()
