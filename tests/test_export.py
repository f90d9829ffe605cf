"""Exported policies do what the policy does: in the formats' own runtimes, for any batch, over several steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.env.formats import ObservationFormat
from pytorchrl.export import example_inputs, export
from pytorchrl.policy import Policy
from pytorchrl.registry import load_class

VECTOR = spaces.Box(-1.0, 1.0, (4,))
IMAGE = spaces.Box(0, 255, (36, 36, 4), np.uint8)
BOTH = spaces.Dict(a=VECTOR, b=spaces.Discrete(3))
BOX = spaces.Box(-2.0, 2.0, (2,))
THREE = spaces.Discrete(3)
NORMAL = {"normalize_observations": True}
GRU = {"recurrent_net": "GRU", "recurrent_net_kwargs": {"output_size": 16}}
LSTM = {"recurrent_net": "LSTM", "recurrent_net_kwargs": {"num_layers": 2, "layer_size": 16}}
CASES: dict[str, tuple[str, str, gym.Space[Any], gym.Space[Any], dict[str, Any]]] = {
    "normalized GRU": ("PPO", "OnPolicyActor", VECTOR, BOX, {**NORMAL, **GRU}),
    "normalized SAC": ("SAC", "OffPolicyActor", VECTOR, BOX, NORMAL),
    "PPO": ("PPO", "OnPolicyActor", VECTOR, THREE, {}),
    "PPO of images": ("PPO", "OnPolicyActor", IMAGE, THREE, {}),
    "LSTM": ("PPO", "OnPolicyActor", VECTOR, THREE, LSTM),
    "dict and many choices": ("PPO", "OnPolicyActor", BOTH, spaces.MultiDiscrete([2, 3]), NORMAL),
    "switches": ("PPO", "OnPolicyActor", VECTOR, spaces.MultiBinary(3), {}),
    "recurrent SAC": ("SAC", "OffPolicyActor", VECTOR, BOX, GRU),
    "DDQN of images": ("DDQN", "OffPolicyActor", IMAGE, THREE, {}),
    "recurrent DDQN": ("DDQN", "OffPolicyActor", VECTOR, THREE, LSTM),
    "RND": ("RND_PPO", "OnPolicyActor", VECTOR, THREE, {}),
    "MPO": ("MPO", "OffPolicyActor", VECTOR, BOX, {}),
    "TD3": ("TD3", "OffPolicyActor", VECTOR, BOX, {}),
}
QUICK = [("normalized GRU", "onnx"), ("normalized SAC", "onnx"), ("normalized GRU", "torch"), ("PPO", "torch")]
ALL = [(name, format) for name in CASES for format in ("onnx", "torch")]


def made_policy(name: str) -> Policy:
    """A policy with weights that matter, and moments that are not those of the beginning."""
    algorithm, kind, observations, actions, config = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        actor = load_class("actor", kind)("cpu", ObservationFormat(observations).space, actions, algorithm, **config)
        for parameter in actor.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        if actor.normalizer is not None:
            rows = [torch.rand(50, *part.space.shape) * 3 + 1 for part in ObservationFormat(observations).parts]
            actor.update_normalizer(ObservationFormat(observations).tree(rows))
    info = {"algorithm": algorithm, "env": "x", "env_kwargs": {}, "steps": 0, "actor": {"name": kind, "config": config}}
    return Policy(actor, info, observations)


class Runtime:
    """The exported file in the program that it is for."""

    def __init__(self, file: Path) -> None:
        self.onnx = file.suffix == ".onnx"
        if self.onnx:
            onnxruntime = pytest.importorskip("onnxruntime")
            self.session = onnxruntime.InferenceSession(str(file))
        else:
            self.program = torch.export.load(file).module()

    def __call__(self, inputs: dict[str, torch.Tensor]) -> list[np.ndarray]:
        if self.onnx:
            return list(self.session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()}))
        with torch.no_grad():
            return [tensor.numpy() for tensor in self.program(*inputs.values())]


@pytest.mark.parametrize(
    ("name", "format"), [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in ALL]
)
def test_it_does_what_the_policy_does(name: str, format: str, tmp_path: Path) -> None:
    """Three steps of five environments, the second of which begins a new episode in one of them."""
    if format == "onnx":
        pytest.importorskip("onnxscript")
    policy = made_policy(name)
    runtime = Runtime(export(policy, format, tmp_path))
    info = json.loads((tmp_path / "policy.json").read_text())
    policy.format.source.seed(0)
    space = gym.vector.utils.batch_space(policy.format.source, 5)
    inputs, state, done = example_inputs(policy, 5), None, np.zeros(5)
    assert [entry["name"] for entry in info["inputs"]] == list(inputs)
    for step in range(3):
        done[:] = [0, step == 1, 0, 0, 0]
        observations = space.sample()
        wanted, state = policy.predict(observations, state, done=done)
        rows = policy.format.tree([torch.from_numpy(part) for part in policy.format.batch(observations)])
        inputs |= rows if isinstance(rows, dict) else {"obs": rows}
        if "done" in inputs:
            inputs["done"] = torch.tensor(done, dtype=torch.float32)[:, None]
        made = dict(zip([entry["name"] for entry in info["outputs"]], runtime(inputs), strict=True))
        action = made.pop("action")
        np.testing.assert_allclose(action.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)
        for key, tensor in made.items():
            inputs[key.replace("next.", "state.")] = torch.from_numpy(tensor)
            np.testing.assert_allclose(tensor, state[key.removeprefix("next.")].numpy(), rtol=1e-5, atol=1e-5)
        assert bool(made) == policy.actor.is_recurrent


def test_safetensors_are_what_load_reads(tmp_path: Path) -> None:
    policy = made_policy("normalized GRU")
    assert export(policy, "safetensors", tmp_path).name == "policy.safetensors"
    again = prl.load(tmp_path)
    obs = np.full((3, 4), 0.5, np.float32)
    np.testing.assert_array_equal(again.predict(obs)[0], policy.predict(obs)[0])


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytorchrl.export.NEEDED", {"onnx": ("a_package_that_is_not_there",)})
    with pytest.raises(prl.ConfigError, match=r"pip install 'pytorchrl\[onnx\]'"):
        export(made_policy("PPO"), "onnx", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_a_planner_is_no_program(format: str, tmp_path: Path) -> None:
    actor = load_class("actor", "ModelBasedPlannerActor")("cpu", VECTOR, BOX, "MPC_RS")
    policy = Policy(actor, {"algorithm": "MPC_RS"}, VECTOR)
    with pytest.raises(prl.ConfigError, match="MPC_RS searches for every action"):
        export(policy, format, tmp_path)
    assert list(tmp_path.iterdir()) == []
