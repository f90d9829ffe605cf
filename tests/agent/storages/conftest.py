"""A world in which every observation is recognizable and every value known, for the contract of on-policy storages.

An observation carries a code that no other one has; V(o) is a known function of the code (and of the hidden state, for
a recurrent actor). So each row of a batch says which transition it is, and returns can be summed up by hand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.storages import GAEBuffer, PPODBuffer, VanillaOnPolicyBuffer, VTraceBuffer
from pytorchrl.keys import ACT, DONE, DONE2, IVAL, LOGP, OBS, OBS2, REW, RHS, RHS2, TERMINAL, VAL

GAMMA = 0.9

# A storage of one rollout by name: how it is made, and the λ of its returns.
STORAGES: dict[str, tuple[type[VanillaOnPolicyBuffer], dict[str, Any], float]] = {
    "vanilla": (VanillaOnPolicyBuffer, {}, 1.0),
    "gae": (GAEBuffer, {"gae_lambda": 0.8}, 0.8),
    # With the actor that collected them, no ratio is clipped and the targets are plain returns.
    "vtrace": (VTraceBuffer, {}, 1.0),
    # Without demos; whoever does not ask for its inputs gets none of those that it keeps.
    "ppod": (PPODBuffer, {"gae_lambda": 0.8}, 0.8),
}


def _vector(codes: Tensor) -> Tensor:
    return torch.stack([codes, -codes, codes / 2], dim=1).float()


def _image(codes: Tensor) -> Tensor:
    """One channel of 2 x 3 pixels; the first three are the code in base 256."""
    digits = [codes % 256, codes // 256 % 256, codes // 65536]
    pixels = torch.stack([*digits, *digits], dim=1).to(torch.uint8)
    return pixels.reshape(-1, 1, 2, 3)


# An observation by kind: how a code becomes one, and which code it has.
OBSERVATIONS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "vector": (_vector, lambda obs: obs[:, 0].round().long()),
    "image": (_image, lambda obs: (obs.flatten(1)[:, :3].long() * torch.tensor([1, 256, 65536])).sum(1)),
    "dict": (
        lambda codes: {"vector": _vector(codes), "image": _image(codes)},
        lambda obs: obs["vector"][:, 0].round().long(),
    ),
}


class KnownActor:
    """V(o) = cos(0.7·code) + h, h ← h/2 + sin(code)/4 from h = 0 where Done; feed-forward: h = 0.

    Hidden states are h ``[N, 1]``; of an "LSTM" (h, c) ``[N, 2, 1]`` with c ← c/2 + sin(code)/4 and h = tanh c.
    A curious one also has V_I(o) = sin(0.3·code) − h.
    """

    device = torch.device("cpu")

    def __init__(self, kind: str, recurrent: bool | str, curious: bool = False) -> None:
        self.encode, self.decode = OBSERVATIONS[kind]
        self.is_recurrent = bool(recurrent)
        self.has_cells = recurrent == "LSTM"
        self.heads = ("value_net1", "ivalue_net1") if curious else ("value_net1",)

    def initial_rhs(self, num_envs: int) -> dict[str, Tensor]:
        return {"policy": torch.zeros(num_envs, 2, 1) if self.has_cells else torch.zeros(num_envs, 1)}

    def log_prob(self, obs: Any) -> Tensor:
        return -self.decode(obs).float()[:, None].sin().abs()

    def __call__(self, obs: Any, rhs: Mapping[str, Tensor], done: Tensor) -> Any:
        """One pass over time-major rows ``[L·n, …]``: (dist, values, hidden states)."""
        n = len(rhs["policy"]) if self.is_recurrent else len(done)
        steps, state = [], rhs if self.is_recurrent else self.initial_rhs(n)
        for start in range(0, len(done), n):
            rows = slice(start, start + n)
            step = self.get_value(tree.index(obs, rows), state, done[rows])
            steps.append(step)
            state = step.get("rhs", state)
        dist = SimpleNamespace(log_prob=lambda action: self.log_prob(obs))
        values = {head: torch.cat([step[head] for step in steps]) for head in self.heads}
        return dist, values, state if self.is_recurrent else rhs

    def get_value(self, obs: Any, rhs: Mapping[str, Tensor], done: Tensor) -> dict[str, Any]:
        assert done.shape == (len(done), 1)
        codes = self.decode(obs).float()[:, None]
        if self.has_cells:
            h, c = (rhs["policy"] * (1 - done)[:, None]).unbind(1)
            c = c / 2 + codes.sin() / 4
            following = torch.stack([c.tanh(), c], dim=1)
        else:
            h = rhs["policy"] * (1 - done) * self.is_recurrent
            following = (h / 2 + codes.sin() / 4) * self.is_recurrent
        values = {"value_net1": (0.7 * codes).cos() + h, "ivalue_net1": (0.3 * codes).sin() - h}
        return {**{head: values[head] for head in self.heads}, "rhs": {"policy": following}}


@dataclass
class Transition:
    """What the world remembers of one environment's step, in plain numbers."""

    env: int
    code: int
    done: float
    hidden: list[float]
    action: int
    reward: float
    value: float
    log_prob: float
    next_value: float
    next_done: float
    terminal: float
    next_code: int = 0
    intrinsic_value: float = 0.0


@dataclass
class World:
    """Hands out samples as a Collector does, and remembers them."""

    kind: str = "vector"
    recurrent: bool | str = False
    num_envs: int = 3
    seed: int = 0
    ends: float = 0.3
    curious: bool = False
    history: list[list[Transition]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.actor = KnownActor(self.kind, self.recurrent, self.curious)
        self.random = np.random.default_rng(self.seed)
        self.count = 0
        self.codes = self._new_codes()
        self.rhs = self.actor.initial_rhs(self.num_envs)
        self.done = torch.ones(self.num_envs, 1)

    def _new_codes(self) -> Tensor:
        self.count += self.num_envs
        return torch.arange(self.count - self.num_envs, self.count) * 37 + 11

    def _column(self, values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=torch.float32)[:, None]

    def sample(self, terminated: Any = None, truncated: Any = None) -> dict[str, Any]:
        """One vector step; how episodes end is drawn unless it is given."""
        N, actor = self.num_envs, self.actor
        terminated = self.random.random(N) < self.ends / 2 if terminated is None else np.asarray(terminated)
        truncated = self.random.random(N) < self.ends if truncated is None else np.asarray(truncated)
        obs, successors = actor.encode(self.codes), self._new_codes()
        predicted = actor.get_value(obs, self.rhs, self.done)
        next_value = actor.get_value(actor.encode(successors), predicted["rhs"], torch.zeros(N, 1))["value_net1"]
        sample = {
            OBS: obs,
            RHS: dict(self.rhs),
            DONE: self.done,
            ACT: torch.as_tensor(self.random.integers(0, 5, (N, 1))),
            REW: self._column(self.random.normal(size=N)),
            OBS2: actor.encode(successors),
            RHS2: predicted["rhs"],
            DONE2: self._column(terminated | truncated),
            TERMINAL: self._column(terminated),
            VAL: predicted["value_net1"],
            LOGP: actor.log_prob(obs),
            "unknown key": "ignored",
        }
        if self.curious:
            sample[IVAL] = predicted["ivalue_net1"]
        self.history.append(
            [
                Transition(
                    env=n,
                    code=int(self.codes[n]),
                    done=self.done[n].item(),
                    hidden=self.rhs["policy"][n].flatten().tolist(),
                    action=int(sample[ACT][n]),
                    reward=sample[REW][n].item(),
                    value=sample[VAL][n].item(),
                    log_prob=sample[LOGP][n].item(),
                    next_value=next_value[n].item(),
                    next_done=sample[DONE2][n].item(),
                    terminal=sample[TERMINAL][n].item(),
                    next_code=int(successors[n]),
                    intrinsic_value=sample[IVAL][n].item() if self.curious else 0.0,
                )
                for n in range(N)
            ]
        )
        ended = torch.as_tensor(terminated | truncated)
        self.codes = torch.where(ended, self._new_codes(), successors)
        self.rhs, self.done = predicted["rhs"], sample[DONE2]
        return sample

    def last(self, steps: int) -> list[Transition]:
        """The newest transitions in the order of a rollout's rows."""
        return [transition for row in self.history[-steps:] for transition in row]

    def returns(self, steps: int, gae_lambda: float) -> list[float]:
        """A + V of the newest transitions, each the plain sum of its definition, A = Σ_k (γλ)^k δ_{t+k}."""
        rows = self.history[-steps:]
        result = []
        for t, row in enumerate(rows):
            for n, start in enumerate(row):
                total, factor = start.value, 1.0
                for step in (later[n] for later in rows[t:]):
                    discount = 0.0 if step.terminal else GAMMA
                    total += factor * (step.reward + discount * step.next_value - step.value)
                    if step.next_done:
                        break
                    factor *= GAMMA * gae_lambda
                result.append(total)
        return result


@dataclass
class Case:
    """One combination of the contract: a storage over a world."""

    storage: str
    world: World
    size: int = 6
    handed_over: bool = False

    def __post_init__(self) -> None:
        self.factory, self.kwargs, self.gae_lambda = STORAGES[self.storage]
        self.algorithm = SimpleNamespace(gamma=GAMMA)
        self.collecting = self.make()
        self.learning = self.make() if self.handed_over else self.collecting

    def make(self, **changed: Any) -> Any:
        create = self.factory.create_factory(**{"size": self.size, **self.kwargs, **changed})
        return create("cpu", self.world.actor, self.algorithm, None)

    def collect(self, steps: int) -> Any:
        """``steps`` insertions; the storage to learn from, ready for batches."""
        for _ in range(steps):
            self.collecting.insert_transition(self.world.sample())
        if self.handed_over:
            self.learning.insert_data_slice(self.collecting.get_all_buffer_data(data_to_cpu=True))
            self.collecting.after_gradients({}, {})
        self.learning.before_gradients()
        return self.learning

    def codes(self, batch: Mapping[str, Any]) -> list[int]:
        return self.world.actor.decode(batch[OBS]).tolist()


@pytest.fixture
def world() -> type[World]:
    return World


@pytest.fixture
def make_case() -> Callable[..., Case]:
    """``make_case(storage, kind=…, recurrent=…, num_envs=…, size=…, handed_over=…)``."""

    def make(storage: str = "gae", size: int = 6, handed_over: bool = False, **world: Any) -> Case:
        return Case(storage, World(**world), size, handed_over)

    return make


@pytest.fixture(params=STORAGES)
def storage_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=OBSERVATIONS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def assert_once_each() -> Callable[[list[int], list[int]], None]:
    """Two lists with the same things in them, however ordered."""

    def check(found: list[int], expected: list[int]) -> None:
        assert Counter(found) == Counter(expected)
        assert max(Counter(found).values()) == 1

    return check


@pytest.fixture
def normalized() -> Callable[[list[float]], list[float]]:
    """(x − mean) / (unbiased std + 1e-5), in plain Python."""

    def compute(values: list[float]) -> list[float]:
        if len(values) == 1:
            return [0.0]
        mean = sum(values) / len(values)
        std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
        return [(value - mean) / (std + 1e-5) for value in values]

    return compute
