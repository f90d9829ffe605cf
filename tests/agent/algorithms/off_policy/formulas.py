"""Actors whose numbers can be worked by hand: tables (discrete actions) and sums of products (continuous ones).

Everything is float64, and noise is drawn beforehand from the same stream.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.distributions import BoxScale, Categorical, Deterministic, DiagGaussian, SquashedGaussian
from pytorchrl.keys import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TERMINAL

EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Stub(nn.Module):
    """What algorithms ask of an actor, without memory."""

    is_recurrent = is_masked = False
    num_critics = 2
    scale: BoxScale

    def detached_copy(self) -> Any:
        return deepcopy(self).requires_grad_(False)

    def burn_in_recurrent_states(self, batch: Any) -> dict[str, Any]:
        return dict(batch)

    @property
    def box_scale(self) -> BoxScale:
        return self.scale


class Tables(Stub):
    """Observation s is row s of every table: scores of two critics, and the policy's logits."""

    def __init__(self, q1: Any, q2: Any, probabilities: Any) -> None:
        super().__init__()
        self.q = nn.Parameter(torch.tensor(np.array([q1, q2], dtype=np.float64)))
        self.logits = nn.Parameter(torch.tensor(np.array(probabilities, dtype=np.float64)).log())
        self.action_space = spaces.Discrete(self.q.shape[-1])

    def allowed(self, scores: Tensor, obs: Tensor) -> Tensor:
        return scores

    def critic_parameters(self) -> list[Tensor]:
        return [self.q]

    def policy_parameters(self) -> list[Tensor]:
        return [self.logits]

    def get_policy(self, obs: Tensor, rhs: Any, done: Tensor) -> tuple[Any, Any]:
        return Categorical(self.logits[obs.flatten()]), rhs

    def get_q_scores(
        self, obs: Tensor, rhs: Any, done: Tensor, actions: Tensor | None = None, num_critics: int | None = None
    ) -> dict[str, Tensor]:
        rows = self.q[:, obs.flatten()]
        scores = [row if actions is None else row.gather(-1, actions) for row in rows]
        return dict(zip(["q1", "q2"][:num_critics], scores, strict=False))


class Products(Stub):
    """μ(s) = tanh(s·M), Q_k(s, a) = s·b_k + u·c_k − d_k·|u|² with u the action in [−1, 1] units."""

    def __init__(self, head: type, seed: int) -> None:
        super().__init__()
        generator = np.random.default_rng(seed)
        self.action_space = spaces.Box(np.float32([-2, -1]), np.float32([2, 3]))
        self.scale = BoxScale(self.action_space).double()
        self.head = head

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.tensor(generator.normal(size=shape)))

        self.M, self.log_std = parameter(3, 2), parameter(2)
        self.b, self.c, self.d = parameter(2, 3, 1), parameter(2, 2, 1), parameter(2, 1, 1)

    def critic_parameters(self) -> list[Tensor]:
        return [self.b, self.c, self.d]

    def policy_parameters(self) -> list[Tensor]:
        return [self.M] if self.head is Deterministic else [self.M, self.log_std]

    def get_policy(self, obs: Tensor, rhs: Any, done: Tensor) -> tuple[Any, Any]:
        mean = obs @ self.M
        if self.head is Deterministic:
            return Deterministic(mean.tanh(), self.scale), rhs
        if self.head is DiagGaussian:
            return DiagGaussian(mean.tanh(), self.log_std.expand_as(mean), self.scale), rhs
        return SquashedGaussian(mean, self.log_std.expand_as(mean), self.scale), rhs

    def get_q_scores(
        self, obs: Tensor, rhs: Any, done: Tensor, actions: Tensor, num_critics: int | None = None
    ) -> dict[str, Tensor]:
        u = self.scale.from_box(actions)
        scores = (
            (obs @ self.b).repeat(1, len(u) // len(obs), 1) + u @ self.c - self.d * u.square().sum(-1, keepdim=True)
        )
        return dict(zip(["q1", "q2"][:num_critics], scores, strict=False))


class Formulas:
    """The same actor in numpy."""

    def __init__(self, actor: Products) -> None:
        self.values = {name: p.detach().numpy() for name, p in actor.named_parameters()}
        self.center, self.radius = np.array([0.0, 1.0]), np.array([2.0, 2.0])

    def mean(self, s: Any) -> Any:
        return s @ self.values["M"]

    def q(self, k: int, s: Any, u: Any) -> Any:
        b, c, d = (self.values[name][k] for name in "bcd")
        return (s @ b + u @ c - d * (u**2).sum(-1, keepdims=True)).astype(np.float64)


def algorithm_of(cls: Any, actor: Any, target: Any, **parameters: Any) -> Any:
    """An algorithm whose target is another actor, so that a mix-up is seen."""
    algorithm = cls("cpu", None, actor, **{"gamma": 0.9, **parameters})
    algorithm.target.load_state_dict(target.state_dict())
    algorithm.generator.manual_seed(11)
    return algorithm


def normal(*shape: int) -> Any:
    """The first numbers that ``algorithm_of``'s generator draws."""
    return torch.empty(*shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(11)).numpy()


def columns(**values: Any) -> dict[str, Any]:
    """Rows as a replay yields them: ``[B, 1]`` of each list."""
    rows = {name: torch.tensor(value).reshape(len(value), -1) for name, value in values.items()}
    zeros = torch.zeros(len(values["r"]), 1, dtype=torch.float64)
    ends = rows.get("e", zeros)
    batch = {OBS: rows["s"], ACT: rows["a"], REW: rows["r"], OBS2: rows["s2"], TERMINAL: ends, DONE: zeros}
    return batch | {RHS: {}, RHS2: {}, DONE2: rows.get("d", ends)}


ONE = columns(s=[0], a=[1], r=[1.0], s2=[1])
ANY = [[0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]
EVEN = [[1 / 3] * 3] * 2
# Five transitions: two within an episode, one terminal, one truncated, one more; n-step sums of as many rewards.
ENDS = np.array([0.0, 0.0, 1.0, 0.0, 0.0])[:, None]
M_STEPS = np.array([3.0, 2.0, 1.0, 1.0, 2.0])[:, None]
WEIGHTS = np.array([1.0, 0.5, 2.0, 0.25, 0.0])[:, None]


def continuous_batch(seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    s, s2 = generator.normal(size=(2, 5, 3))
    a = generator.uniform([-2, -1], [2, 3], (5, 2))
    return columns(s=s, a=a, r=generator.normal(size=5), s2=s2, e=ENDS, d=np.array([0.0, 0.0, 1.0, 1.0, 0.0]))


def arrays(batch: dict[str, Any]) -> tuple[Any, ...]:
    """(s, u, r, s2) in numpy, the action in [−1, 1] units."""
    s, a, r, s2 = (batch[key].numpy() for key in (OBS, ACT, REW, OBS2))
    return s, (a - [0.0, 1.0]) / 2.0, r, s2
