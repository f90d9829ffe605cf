"""Real networks: what an actor said while it acted, it says again about every batch that a storage deals out.

The present policy is the one that acted, so values and log-probabilities agree to rounding: with hidden states, first
observations, resets of memories and the order of sequences all right, in a first rollout and in later ones.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.agent.actors import OnPolicyActor
from pytorchrl.agent.algorithms import PPO
from pytorchrl.agent.env import VecEnv
from pytorchrl.keys import ACT, DONE, LOGP, OBS, RHS, VAL
from pytorchrl.scheme.collection import Collector
from pytorchrl.tree import leaves

SIZE, N = 6, 3
VECTOR, IMAGE = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(0, 255, (3, 12, 12), np.uint8)
SPACES: dict[str, gym.Space[Any]] = {
    "vector": VECTOR,
    "image": IMAGE,
    "dict": spaces.Dict({"vector": VECTOR, "image": IMAGE}),
}
MEMORIES: dict[str, dict[str, Any]] = {
    "feed-forward": {},
    "GRU": {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 5}},
    "LSTM": {"recurrent_net": "LSTM", "recurrent_net_kwargs": {"layer_size": 5, "num_layers": 2}},
}

# Demos would bring actions that the actor did not choose.
OF_ITS_OWN_ACTIONS = {"ppod": {"rho": 0.0, "phi": 0.0}}


class Noise(gym.Env[Any, Any]):
    """Random observations; episodes end and are cut at random."""

    action_space = spaces.Discrete(3)

    def __init__(self, kind: str) -> None:
        self.observation_space = SPACES[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        ended, cut = (self.np_random.random(2) < 0.15).tolist()
        return self.observation_space.sample(), float(self.np_random.normal()), ended, cut, {}


@pytest.mark.parametrize("handed_over", [False, True], ids=["local", "handed-over"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_the_actor_agrees_with_itself(
    make_case: Any, storage_name: str, kind: str, memory: str, handed_over: bool
) -> None:
    case = make_case(storage_name)
    factory, options = case.factory, {**case.kwargs, **OF_ITS_OWN_ACTIONS.get(storage_name, {})}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        envs = VecEnv(Noise, N, env_kwargs={"kind": kind})
        # Large gains: what memories hold has to matter.
        actor = OnPolicyActor(
            "cpu", envs.observation_space, envs.action_space, "PPO", policy_gain=3.0, **MEMORIES[memory]
        )
        algorithm = PPO("cpu", envs, actor)
        collecting = factory(SIZE, "cpu", actor, algorithm, envs, **options)
        learning = factory(SIZE, "cpu", actor, algorithm, envs, **options) if handed_over else collecting
    collector = Collector(envs, actor, algorithm, collecting, [1, 2, 3])
    dtypes = [leaf.dtype for leaf in leaves(collector.obs)]
    for steps in (SIZE, 4, 3, SIZE):
        collector.collect(steps)
        if handed_over:
            learning.insert_data_slice(collecting.get_all_buffer_data(data_to_cpu=True))
            collecting.after_gradients({}, {})
        learning.before_gradients()
        rows = 0
        for batch in learning.generate_batches(N, None):
            learning.after_gradients(batch, {})
            assert [leaf.dtype for leaf in leaves(batch[OBS])] == dtypes
            with torch.no_grad():
                dist, values, _ = actor(batch[OBS], batch[RHS], batch[DONE])
            torch.testing.assert_close(dist.log_prob(batch[ACT]), batch[LOGP], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(values["value_net1"], batch[VAL], rtol=1e-4, atol=1e-5)
            rows += len(batch[ACT])
        assert rows == steps * N
    envs.close()
