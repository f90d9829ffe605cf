"""Recurrences against their definitions, published numbers and each other.

`pytorchrl.functional.returns` scans; every reference here is a plain sum per environment and per start row.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from torch import Tensor

from pytorchrl.functional import (
    backward_recurrence,
    discount_cumsum,
    discounted_returns,
    gae,
    n_step_returns,
    normalize,
    vtrace,
)

GAMMAS = st.sampled_from([0.0, 0.5, 0.99, 1.0])
LAMBDAS = st.sampled_from([0.0, 0.8, 1.0])
CLIPS = st.sampled_from([0.0, 0.9, 1.0, 1.2, math.inf])


def close(actual: Tensor, expected: Any, rtol: float = 1e-10, atol: float = 1e-10) -> None:
    np.testing.assert_allclose(actual.numpy(), np.asarray(expected), rtol=rtol, atol=atol)


@dataclasses.dataclass
class Rollout:
    """Time-major `[T, N]`, float64."""

    rewards: Tensor
    values: Tensor
    next_values: Tensor
    terminals: Tensor
    dones: Tensor
    log_ratios: Tensor

    def map(self, f: Any) -> "Rollout":
        return Rollout(*(f(getattr(self, field.name)) for field in dataclasses.fields(self)))

    def replace(self, **changes: Tensor) -> "Rollout":
        return dataclasses.replace(self, **changes)


def make_rollout(events: np.ndarray, seed: int) -> Rollout:
    """Random numbers around given events `[T, N]`: 0 goes on, 1 truncated, 2 terminated, 3 both."""
    rng = np.random.default_rng(seed)
    T, N = events.shape
    rewards, values, final_values, log_ratios = (torch.from_numpy(rng.normal(size=(T, N))) for _ in range(4))
    dones, terminals = torch.from_numpy(events > 0), torch.from_numpy(events > 1)
    following = torch.cat([values[1:], final_values[-1:]])
    next_values = torch.where(dones, final_values, following)
    return Rollout(rewards, values, next_values, terminals.double(), dones.double(), 0.7 * log_ratios)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    T, N = draw(st.integers(1, 19)), draw(st.integers(1, 3))
    event = st.sampled_from(draw(st.sampled_from([[0], [0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 3]])))
    events = draw(st.lists(event, min_size=T * N, max_size=T * N))
    return make_rollout(np.array(events).reshape(T, N), draw(st.integers(0, 2**32 - 1)))


def every_result(rollout: Rollout, gamma: Any = 0.9, gae_lambda: float = 0.8, n: int = 3) -> dict[str, Tensor]:
    """Whatever this module computes from a rollout, by name. V-trace clips differ from each other and from 1."""
    r = rollout
    targets, advantages = vtrace(
        r.rewards, r.values, r.next_values, r.terminals, r.dones, r.log_ratios, gamma, gae_lambda, 1.2, 0.9
    )
    y, sums, horizons = n_step_returns(r.rewards, r.terminals, r.dones, r.next_values, gamma, n)
    return {
        "discounted": discounted_returns(r.rewards, r.next_values, r.terminals, r.dones, gamma),
        "gae": gae(r.rewards, r.values, r.next_values, r.terminals, r.dones, gamma, gae_lambda),
        "vtrace targets": targets,
        "vtrace advantages": advantages,
        "n-step targets": y,
        "n-step sums": sums,
        "n-step horizons": horizons,
    }


# The definitions, as sums over the steps that are left in the episode.


def steps_left(dones: np.ndarray, t: int) -> list[int]:
    """The rows from t to the end of its episode, or of the data, for one environment."""
    rows = []
    for k in range(t, len(dones)):
        rows.append(k)
        if dones[k]:
            break
    return rows


def by_definition(rollout: Rollout, start: Any) -> np.ndarray:
    """Apply start(rows, numbers of one environment) to every row of every environment: `[T, N, outputs]`."""
    T, N = rollout.rewards.shape
    columns = [rollout.map(lambda x, i=i: x[:, i].numpy()) for i in range(N)]
    return np.array([[start(steps_left(columns[i].dones, t), columns[i]) for i in range(N)] for t in range(T)])


@given(rollouts(), GAMMAS)
def test_discounted_returns_are_the_sum_of_the_definition(rollout: Rollout, gamma: float) -> None:
    def start(rows: list[int], env: Any) -> float:
        alive = 0.0 if env.terminals[rows[-1]] else 1.0
        rewards = sum(gamma**k * env.rewards[row] for k, row in enumerate(rows))
        return rewards + gamma ** len(rows) * alive * env.next_values[rows[-1]]

    r = rollout
    actual = discounted_returns(r.rewards, r.next_values, r.terminals, r.dones, gamma)
    close(actual, by_definition(rollout, start))


def td_error(env: Any, row: int, gamma: float) -> float:
    return env.rewards[row] + gamma * (0.0 if env.terminals[row] else env.next_values[row]) - env.values[row]


@given(rollouts(), GAMMAS, LAMBDAS)
def test_gae_is_the_sum_of_the_definition(rollout: Rollout, gamma: float, gae_lambda: float) -> None:
    def start(rows: list[int], env: Any) -> float:
        return sum((gamma * gae_lambda) ** k * td_error(env, row, gamma) for k, row in enumerate(rows))

    r = rollout
    actual = gae(r.rewards, r.values, r.next_values, r.terminals, r.dones, gamma, gae_lambda)
    close(actual, by_definition(rollout, start))


@given(rollouts(), GAMMAS, LAMBDAS, CLIPS, CLIPS)
def test_vtrace_is_the_sum_of_the_definition(
    rollout: Rollout, gamma: float, gae_lambda: float, clip_rho: float, clip_c: float
) -> None:
    def target(rows: list[int], env: Any) -> float:
        v = env.values[rows[0]]
        for k, row in enumerate(rows):
            trace = math.prod(gae_lambda * min(clip_c, math.exp(env.log_ratios[i])) for i in rows[:k])
            rho = min(clip_rho, math.exp(env.log_ratios[row]))
            v += gamma**k * trace * rho * td_error(env, row, gamma)
        return v

    def start(rows: list[int], env: Any) -> tuple[float, float]:
        row = rows[0]
        bootstrap = 0.0 if env.terminals[row] else env.next_values[row]
        following = target(rows[1:], env) if len(rows) > 1 else bootstrap
        rho = min(clip_rho, math.exp(env.log_ratios[row]))
        return target(rows, env), rho * (env.rewards[row] + gamma * following - env.values[row])

    r = rollout
    actual = vtrace(
        r.rewards,
        r.values,
        r.next_values,
        r.terminals,
        r.dones,
        r.log_ratios,
        gamma,
        gae_lambda=gae_lambda,
        clip_rho=clip_rho,
        clip_c=clip_c,
    )
    close(torch.stack(actual, -1), by_definition(rollout, start))


@given(rollouts(), GAMMAS, st.sampled_from([1, 2, 3, 5, 30]))
def test_n_step_returns_are_the_sum_of_the_definition(rollout: Rollout, gamma: float, n: int) -> None:
    def start(rows: list[int], env: Any) -> tuple[float, float, int]:
        rows = rows[:n]
        m, last = len(rows), rows[-1]
        sums = sum(gamma**k * env.rewards[row] for k, row in enumerate(rows))
        return sums + gamma**m * (0.0 if env.terminals[last] else env.next_values[last]), sums, m

    r = rollout
    actual = n_step_returns(r.rewards, r.terminals, r.dones, r.next_values, gamma, n)
    close(torch.stack(actual, -1), by_definition(rollout, start))


# Metamorphic: how the results must change when the input does.


def equal(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 0.0) -> None:
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


@given(rollouts())
def test_a_batch_is_its_episodes_put_together(rollout: Rollout) -> None:
    together = every_result(rollout)
    for i in range(rollout.rewards.shape[1]):
        env, t = rollout.map(lambda x, i=i: x[:, i : i + 1]), 0
        while t < len(env.rewards):
            rows = steps_left(env.dones[:, 0].numpy(), t)
            episode = env.map(lambda x, rows=rows: x[rows[0] : rows[-1] + 1])
            alone = every_result(episode.replace(dones=episode.terminals))  # a truncated one is cut, without a done
            equal({name: x[rows, i : i + 1] for name, x in together.items()}, alone, 1e-10)
            t = rows[-1] + 1


@given(rollouts())
def test_permuting_environments_permutes_results(rollout: Rollout) -> None:
    permuted = every_result(rollout.map(lambda x: x.flip(1)))
    equal({name: x.flip(1) for name, x in permuted.items()}, every_result(rollout))


@given(rollouts())
def test_scaling_rewards_and_values_scales_results(rollout: Rollout) -> None:
    r = rollout
    scaled = every_result(r.replace(rewards=3 * r.rewards, values=3 * r.values, next_values=3 * r.next_values))
    expected = every_result(r)
    equal(scaled, {name: x if name == "n-step horizons" else 3 * x for name, x in expected.items()}, 1e-10)


@given(rollouts(), st.sampled_from([math.nan, math.inf, -math.inf, 1e300]))
def test_what_stands_behind_a_terminal_changes_nothing(rollout: Rollout, poison: float) -> None:
    next_values = torch.where(rollout.terminals.bool(), poison, rollout.next_values)
    equal(every_result(rollout.replace(next_values=next_values)), every_result(rollout))


@given(rollouts())
def test_the_next_episode_changes_nothing_before_it(rollout: Rollout) -> None:
    """Also where the episode was truncated: another continuation leaves every earlier result alone."""
    unfinished = rollout.dones.flip(0).cumsum(0).flip(0) == 0
    other = every_result(
        rollout.replace(
            **{
                key: torch.where(unfinished, 5.0, getattr(rollout, key))
                for key in ("rewards", "values", "next_values", "log_ratios")
            }
        )
    )
    expected = every_result(rollout)
    equal({name: x[~unfinished] for name, x in other.items()}, {name: x[~unfinished] for name, x in expected.items()})


@given(rollouts())
def test_a_terminal_is_a_boundary_without_a_done(rollout: Rollout) -> None:
    only_truncations = rollout.dones * (1 - rollout.terminals)
    equal(every_result(rollout.replace(dones=only_truncations)), every_result(rollout))


@given(rollouts(), GAMMAS)
def test_discounted_is_gae_of_lambda_one_is_vtrace_on_policy(rollout: Rollout, gamma: float) -> None:
    r = rollout
    expected = discounted_returns(r.rewards, r.next_values, r.terminals, r.dones, gamma)
    close(gae(r.rewards, r.values, r.next_values, r.terminals, r.dones, gamma, 1.0) + r.values, expected)
    on_policy = torch.zeros_like(r.rewards)
    targets, advantages = vtrace(
        r.rewards, r.values, r.next_values, r.terminals, r.dones, on_policy, gamma, 1.0, math.inf, math.inf
    )
    close(targets, expected)
    close(advantages, expected - r.values)
    close(n_step_returns(r.rewards, r.terminals, r.dones, r.next_values, gamma, len(r.rewards))[0], expected)


@given(
    st.integers(1, 40), st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 2**32 - 1)
)
def test_reward_one_forever_is_worth_the_same_wherever_a_time_limit_cuts(
    T: int, rate: float, gamma: float, seed: int
) -> None:
    dones = torch.from_numpy(np.random.default_rng(seed).random((T, 2)) < rate).double()
    rewards, never = torch.ones(T, 2).double(), torch.zeros(T, 2).double()
    worth = rewards / (1 - gamma)
    rollout = Rollout(rewards, worth, worth, never, dones, torch.randn(T, 2).double())
    results = every_result(rollout, gamma)
    for name in ("discounted", "vtrace targets", "n-step targets"):
        close(results[name], worth)
    for name in ("gae", "vtrace advantages"):
        close(results[name], never, atol=1e-9)


# Published numbers. Fixtures are [sequence, time], or one sequence in time.


def time_major(x: Any) -> Tensor:
    return torch.tensor(x, dtype=torch.float64).reshape(-1, np.shape(x)[-1]).T


def shifted(values: Tensor, bootstrap: Any) -> Tensor:
    return torch.cat([values[1:], torch.as_tensor(bootstrap).reshape(1, -1)])


def test_vtrace_of_rlax(oracles: dict[str, Any]) -> None:
    f = oracles["rlax/_src/vtrace_test.py"]
    actions = torch.tensor(f["actions"])[..., None]
    log_pi, log_mu = (
        torch.tensor(f[key]).log_softmax(-1).gather(-1, actions)[..., 0].T.double()
        for key in ("target_logits", "behaviour_logits")
    )
    discounts, values = time_major(f["discounts"]), time_major(f["values"])
    ended = discounts == 0
    targets, advantages = vtrace(
        time_major(f["rewards"]),
        values,
        shifted(values, time_major([[b] for b in f["bootstrap"]])),
        ended,
        ended,
        log_pi - log_mu,
        discounts,
        f["lambda_"],
        f["clip_rho"],
    )
    close(targets - values, time_major(f["expected_vs_minus_v"]), f["rtol"], 1e-6)
    close(advantages, time_major(f["expected_pg_advantage"]), f["rtol"], 1e-6)


def test_returns_of_rlax(oracles: dict[str, Any]) -> None:
    f = oracles["rlax/_src/multistep_test.py"]
    rewards, discounts, next_values = (time_major(f[key]) for key in ("r", "discount", "v_next"))
    never = torch.zeros_like(rewards)
    close(discounted_returns(rewards, next_values, never, never, discounts), time_major(f["discounted"]), f["rtol"])
    for n in (3, 5):
        targets, _, _ = n_step_returns(rewards, never, never, next_values, discounts, n)
        close(targets, time_major(f[f"nstep{n}"]), f["rtol"])
    values = next_values.roll(1, 0)  # V(first observation) is free: it cancels in advantage + value
    advantages = gae(rewards, values, next_values, never, never, discounts, 0.75)
    close(advantages + values, time_major(f["lambda_075"]), f["rtol"])


@pytest.mark.parametrize(("key", "gae_lambda"), [("lambda_1", 1.0), ("lambda_07", 0.7), ("lambda_04", 0.4)])
def test_gae_of_rlax(oracles: dict[str, Any], key: str, gae_lambda: float) -> None:
    f = oracles["rlax/_src/multistep_test.py"]["gae"]
    values, discounts = time_major(f["v"]), time_major(f["discount"])
    ended = discounts == 0
    actual = gae(time_major(f["r"]), values[:-1], values[1:], ended, ended, discounts, gae_lambda)
    close(actual, time_major(f[key]), 0, f["atol"])


def test_td_errors_of_rlax(oracles: dict[str, Any]) -> None:
    f = oracles["rlax/_src/value_learning_test.py"]
    td = f["td"]
    rewards, values, next_values, discounts = (
        torch.tensor([td[key]], dtype=torch.float64) for key in ("r", "v", "v_next", "discount")
    )
    never = torch.zeros_like(rewards)
    close(gae(rewards, values, next_values, never, never, discounts, 0.0)[0], td["expected"], 1e-5, 1e-6)

    td = f["td_lambda"]
    rewards, values, discounts = (time_major(td[key]) for key in ("r", "v", "discount"))
    next_values = shifted(values, time_major([[b] for b in td["bootstrap"]]))
    never = torch.zeros_like(rewards)
    actual = gae(rewards, values, next_values, never, never, discounts, td["lambda_"])
    close(actual, time_major(td["expected"]), 1e-5, 1e-6)


@pytest.mark.parametrize("key", ["gae_term", "gae_trunc"])
def test_gae_of_tianshou(oracles: dict[str, Any], key: str) -> None:
    common = oracles["tianshou test/base/test_returns.py"]["gae_term"]
    f = {**common, "truncated": [0] * len(common["rew"]), **oracles["tianshou test/base/test_returns.py"][key]}
    rewards, next_values, terminals, truncated = (
        time_major(f[k]) for k in ("rew", "v_next", "terminated", "truncated")
    )
    values = (next_values * (1 - terminals)).roll(1, 0)
    dones = terminals + truncated
    actual = gae(rewards, values, next_values, terminals, dones, f["gamma"], f["lam"]) + values
    close(actual, time_major(f["expected_returns"]), 1e-5)


@pytest.mark.parametrize("n", [1, 2, 10])
def test_n_step_returns_of_tianshou(oracles: dict[str, Any], n: int) -> None:
    f = oracles["tianshou test/base/test_returns.py"]["nstep"]
    rewards, dones = np.array(f["rew_ring"], dtype=float), np.array(f["done_ring"])
    slots = np.arange(10)
    values = -rewards[np.where(dones, slots, (slots + 1) % 10)]
    rewards, dones, values = (time_major(x[f["order"]]) for x in (rewards, dones, values))
    actual, _, _ = n_step_returns(rewards, dones, dones, values, f["gamma"], n)
    close(actual, time_major(f[f"n{n}"]))


# A worked example: γ = 0.9, t = 2 truncated with a final value of 1.5, t = 4 terminal, bootstrap 0.75.

EXAMPLE = Rollout(
    rewards=time_major([1, 0, -1, 2, 0.5, 1]),
    values=time_major([0.5, 1, -0.5, 2, 0.25, -1]),
    next_values=time_major([1, -0.5, 1.5, 0.25, math.nan, 0.75]),
    terminals=time_major([0, 0, 0, 0, 1, 0]),
    dones=time_major([0, 0, 1, 0, 1, 0]),
    log_ratios=time_major([0.5, 1.5, 2, 0.8, 1, 1.25]).log(),
)
DISCOUNTED = [1.2835, 0.315, 0.35, 2.45, 0.5, 1.675]


def example_is(actual: Tensor, expected: list[float]) -> None:
    close(actual[:, 0], expected, 0, 1e-6)


def example_vtrace(**changes: Any) -> tuple[Tensor, Tensor]:
    e = EXAMPLE
    arguments = {"log_ratios": e.log_ratios, "gamma": 0.9} | changes
    return vtrace(e.rewards, e.values, e.next_values, e.terminals, e.dones, **arguments)


def test_example_of_discounted_returns_and_gae() -> None:
    e = EXAMPLE
    example_is(discounted_returns(e.rewards, e.next_values, e.terminals, e.dones, 0.9), DISCOUNTED)
    advantages = gae(e.rewards, e.values, e.next_values, e.terminals, e.dones, 0.9, 0.8)
    example_is(advantages, [0.79664, -0.838, 0.85, 0.405, 0.25, 2.675])
    example_is(normalize(advantages), [0.093108, -1.331076, 0.139598, -0.248109, -0.383153, 1.729633])


def test_example_of_vtrace() -> None:
    targets, _ = example_vtrace(log_ratios=torch.zeros(6, 1).double())
    example_is(targets, DISCOUNTED)
    targets, advantages = example_vtrace()
    example_is(targets, [0.89175, 0.315, 0.35, 2.36, 0.5, 1.675])
    example_is(advantages, [0.39175, -0.685, 0.85, 0.36, 0.25, 2.675])
    targets, advantages = example_vtrace(clip_rho=1.2, clip_c=0.9)
    example_is(targets, [0.78879, 0.0862, 0.52, 2.36, 0.5, 2.21])
    example_is(advantages, [0.28879, -0.6384, 1.02, 0.36, 0.25, 3.21])


def test_vtrace_at_the_ends_of_its_clips() -> None:
    targets, advantages = example_vtrace(clip_rho=0.0)
    example_is(targets, EXAMPLE.values[:, 0].tolist())
    example_is(advantages, [0.0] * 6)
    targets, _ = example_vtrace(log_ratios=torch.zeros(6, 1).double(), clip_c=0.0)
    example_is(targets, [1.9, -0.45, 0.35, 2.225, 0.5, 1.675])  # one-step targets r + γV'


def test_example_of_n_step_returns() -> None:
    e = EXAMPLE
    targets, _, horizons = n_step_returns(e.rewards, e.terminals, e.dones, e.next_values, 0.9, 2)
    example_is(horizons, [2, 2, 1, 2, 1, 1])
    example_is(targets, [0.595, 0.315, 0.35, 2.45, 0.5, 1.675])
    _, sums, horizons = n_step_returns(e.rewards, e.terminals, e.dones, e.next_values, 0.9, 3)
    example_is(horizons, [3, 2, 1, 2, 1, 1])
    example_is(sums, [0.19, -0.9, -1, 2.45, 0.5, 1])


def test_n_step_refuses_a_window_of_nothing() -> None:
    e = EXAMPLE
    with pytest.raises(ValueError, match="at least 1, got 0"):
        n_step_returns(e.rewards, e.terminals, e.dones, e.next_values, 0.9, 0)


# Shapes, dtypes, side effects.


@pytest.fixture
def rollout() -> Rollout:
    return make_rollout(np.random.default_rng(0).choice(4, p=[0.9, 0.05, 0.03, 0.02], size=(33, 3)), seed=1)


def test_inputs_are_left_alone_and_not_returned(rollout: Rollout) -> None:
    before = rollout.map(torch.clone)
    for n in (1, 3):
        for result in every_result(rollout, n=n).values():
            result.fill_(7.0)
    for field in dataclasses.fields(Rollout):
        assert torch.equal(getattr(rollout, field.name), getattr(before, field.name)), field.name


def test_trailing_axes_bool_flags_and_broadcasting(rollout: Rollout) -> None:
    expected = every_result(rollout)
    trailing = every_result(rollout.map(lambda x: x[..., None]))
    equal(trailing, {name: x[..., None] for name, x in expected.items()})
    equal(every_result(rollout.replace(terminals=rollout.terminals.bool(), dones=rollout.dones.bool())), expected)
    terminals, dones = rollout.terminals[:, :1], rollout.dones[:, :1]
    expanded = rollout.replace(terminals=terminals.expand(-1, 3), dones=dones.expand(-1, 3))
    equal(every_result(rollout.replace(terminals=terminals, dones=dones)), every_result(expanded))


def test_gamma_may_differ_per_environment(rollout: Rollout) -> None:
    gammas = [0.5, 0.9, 1.0]
    together = every_result(rollout, torch.tensor(gammas, dtype=torch.float64))
    for i, gamma in enumerate(gammas):
        alone = every_result(rollout, gamma)
        equal({name: x[:, i] for name, x in together.items()}, {name: x[:, i] for name, x in alone.items()}, 1e-10)


def test_float32_stays_float32_and_accurate_over_2000_steps() -> None:
    events = np.random.default_rng(0).choice(3, p=[0.995, 0.003, 0.002], size=(2000, 4))
    double = make_rollout(events, seed=2)
    single, expected = every_result(double.map(Tensor.float), 0.99, 0.95), every_result(double, 0.99, 0.95)
    for name, x in single.items():
        assert x.dtype == torch.float32, name
        close(x, expected[name], 1e-5, 1e-6 * max(1.0, expected[name].abs().max().item()))


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_backward_recurrence_is_the_loop(T: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, decay = rng.normal(size=(T, 2)), rng.choice([0.0, 0.5, 1.0, 1.25], size=(T, 2))
    y = np.zeros((T + 1, 2))
    for t in reversed(range(T)):
        y[t] = x[t] + decay[t] * y[t + 1]
    actual = backward_recurrence(torch.from_numpy(x), torch.from_numpy(decay))
    np.testing.assert_allclose(actual.numpy(), y[:-1], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(actual.numpy()[decay == 0], x[decay == 0])


@pytest.mark.parametrize("T", [1, 2, 3])
def test_backward_recurrence_leaves_its_input_alone(T: int) -> None:
    x, decay = torch.ones(T, 2), torch.ones(T, 2)
    backward_recurrence(x, decay).fill_(7.0)
    assert torch.equal(x, torch.ones(T, 2))
    assert torch.equal(decay, torch.ones(T, 2))


def filtered(x: np.ndarray, discount: float) -> np.ndarray:
    return lfilter([1.0], [1.0, -discount], x[::-1], axis=0)[::-1]


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("T", [1, 2, 7, 64, 500])
def test_discounted_sums_are_the_filter_of_scipy(T: int, discount: float) -> None:
    x = np.random.default_rng(T).normal(size=(T, 3))
    expected = filtered(x, discount)
    np.testing.assert_allclose(discount_cumsum(x, discount), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(discount_cumsum(x[:, 0], discount), expected[:, 0], rtol=1e-10, atol=1e-10)
    decay = torch.full((T, 3), discount, dtype=torch.float64)
    close(backward_recurrence(torch.from_numpy(x), decay), expected)
    never, bootstrap = torch.zeros(T, 3).double(), torch.from_numpy(np.random.default_rng(T).normal(size=(T, 3)))
    returns = discounted_returns(torch.from_numpy(x), bootstrap, never, never, discount)
    close(returns, filtered(np.vstack([x, bootstrap[-1:]]), discount)[:-1])


def test_discount_cumsum_keeps_dtype_and_input() -> None:
    x = np.ones((4, 2), dtype=np.float32)
    y = discount_cumsum(x, np.float64(0.5))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y[:, 0], [1.875, 1.75, 1.5, 1.0])
    np.testing.assert_array_equal(x, np.ones((4, 2)))
    integers = discount_cumsum([1, 1, 1], 0.5)
    assert integers.dtype == np.float64
    np.testing.assert_array_equal(integers, [1.75, 1.5, 1.0])
    assert discount_cumsum(np.zeros(0), 0.5).shape == (0,)


@pytest.mark.parametrize(
    ("last_value", "advantages", "returns"),
    [
        (0.0, [2.373068, 1.46525, 0.5], [2.9701, 1.99, 1]),
        (2.0, [4.124457, 3.32744, 2.48], [4.910698, 3.9502, 2.98]),
    ],
)
def test_example_of_discount_cumsum(last_value: float, advantages: list[float], returns: list[float]) -> None:
    """What PPOBuffer computes for r = (1, 1, 1), V = 0.5, γ = 0.99, λ = 0.95."""
    rewards, values = np.ones(3), np.array([0.5, 0.5, 0.5, last_value])
    deltas = rewards + 0.99 * values[1:] - values[:-1]
    np.testing.assert_allclose(discount_cumsum(deltas, 0.99 * 0.95), advantages, atol=1e-6)
    np.testing.assert_allclose(discount_cumsum(np.append(rewards, last_value), 0.99)[:-1], returns, atol=1e-6)


def test_normalize_is_unbiased_and_over_everything() -> None:
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(5, 4, 1))
    expected = (x - x.mean()) / (x.std(ddof=1) + 0.1)
    close(normalize(torch.from_numpy(x), eps=0.1), expected)
    assert torch.equal(normalize(torch.full((1, 1, 1), 5.0)), torch.zeros(1, 1, 1))
    assert torch.equal(normalize(torch.full((3, 2), 5.0)), torch.zeros(3, 2))
