"""Returns and advantages, each one vectorized pass over time-major tensors.

Shapes are `[T, N]`, or `[T, N, 1]`: time first, any trailing shape. Everything at row t belongs to the transition
t → t+1:

    rewards      r_t
    values       V_t = V(o_t)
    next_values  V'_t = V(true successor of o_t), never the value of the next episode's first observation
    terminals    e_t, the MDP ended: V'_t does not count, and may be anything, NaN included
    dones        d_t, the episode ended for whatever reason, a time limit included; e_t = 1 implies it
    gamma        γ, a number or a tensor that broadcasts (one discount per environment or per step)

Below, discount γ_t = γ (1 − e_t) and carry κ_t = 1 − d_t. The last row is where the data are cut: nothing is carried
back into it, and it bootstraps from V'_{T−1} unless it is terminal.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def backward_recurrence(x: Tensor, decay: Tensor) -> Tensor:
    """Solve y_t = x_t + decay_t · y_{t+1} with y_T = 0 for all t, for x `[T, …]` and decay that broadcasts to it.

    Hillis-Steele scan: before each step y_t sums the k terms from t on and p_t is the product of the k decays that lead
    to y_{t+k}; one step doubles k, so log2(T) tensor operations do the work of T. There is no division, so decays of
    zero are exact. Decays above one are safe as long as their products stay finite.

    On one CPU core this takes 0.5 ms for `[2048, 64]` and 0.06 ms for `[128, 8]`, where loops over time take 1.7 and
    0.10 ms in NumPy, 4.2 and 0.25 ms in PyTorch.
    """
    T = x.shape[0]
    y, p, k = x.clone(), decay, 1
    while k < T:
        y = torch.cat([torch.addcmul(y[:-k], p[: T - k], y[k:]), y[-k:]])
        p = p[:-k] * p[k:]
        k *= 2
    return y


def discounted_returns(
    rewards: Tensor, next_values: Tensor, terminals: Tensor, dones: Tensor, gamma: float | Tensor
) -> Tensor:
    """Discounted returns R_t = r_t + γ_t (κ_t R_{t+1} + (1 − κ_t) V'_t), `[T, …]`."""
    bootstrap, cut = _bootstrap_and_cut(next_values, terminals, dones)
    x = rewards + gamma * torch.where(cut, bootstrap, 0.0)
    return backward_recurrence(x, gamma * _carry(cut, rewards))


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminals: Tensor,
    dones: Tensor,
    gamma: float | Tensor,
    gae_lambda: float,
) -> Tensor:
    """Generalized advantage estimates (arXiv 1506.02438), `[T, …]`; the returns are advantages + values.

    δ_t = r_t + γ_t V'_t − V_t
    A_t = δ_t + γ λ κ_t A_{t+1}
    """
    bootstrap, cut = _bootstrap_and_cut(next_values, terminals, dones)
    deltas = rewards + gamma * bootstrap - values
    return backward_recurrence(deltas, gamma * gae_lambda * _carry(cut, rewards))


def vtrace(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminals: Tensor,
    dones: Tensor,
    log_ratios: Tensor,
    gamma: float | Tensor,
    gae_lambda: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets v and advantages (arXiv 1802.01561), both `[T, …]`; the advantages are not normalized.

    log_ratios is log π(a_t|o_t) − log μ(a_t|o_t), of the learner's policy π and the behavior policy μ.

    ρ_t = min(ρ̄, π/μ),  c_t = λ min(c̄, π/μ)
    δ_t = ρ_t (r_t + γ_t V'_t − V_t)
    v_t = V_t + δ_t + γ κ_t c_t (v_{t+1} − V_{t+1})
    A_t = ρ_t (r_t + γ_t v'_t − V_t),  v'_t = v_{t+1} within an episode and V'_t where it, or the data, end
    """
    bootstrap, cut = _bootstrap_and_cut(next_values, terminals, dones)
    ratios = log_ratios.exp()
    rho = ratios.clamp(max=clip_rho)
    c = gae_lambda * ratios.clamp(max=clip_c)
    deltas = rho * (rewards + gamma * bootstrap - values)
    targets = values + backward_recurrence(deltas, gamma * _carry(cut, rewards) * c)
    advantages = rho * (rewards + gamma * _next(targets, bootstrap, cut) - values)
    return targets, advantages


def n_step_returns(
    rewards: Tensor, terminals: Tensor, dones: Tensor, next_values: Tensor, gamma: float | Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """n-step targets y, reward sums r⁽ᵐ⁾ and horizons m (how many rewards were really summed), each `[T, …]`.

    m_t    = min(n, steps to the end of the episode or of the data)
    r⁽ᵐ⁾_t = Σ_{k<m} γᵏ r_{t+k}
    y_t    = r⁽ᵐ⁾_t + γᵐ (1 − e_{t+m−1}) V'_{t+m−1}

    A window of k+1 steps is one reward and the window of k steps after it, unless the episode ends in between.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    bootstrap, cut = _bootstrap_and_cut(next_values, terminals, dones)
    nothing = torch.zeros_like(rewards)
    targets, sums, horizons = rewards + gamma * bootstrap, rewards.clone(), torch.ones_like(rewards)
    for _ in range(min(n, rewards.shape[0]) - 1):
        targets = rewards + gamma * _next(targets, bootstrap, cut)
        sums = rewards + gamma * _next(sums, nothing, cut)
        horizons = 1.0 + _next(horizons, nothing, cut)
    return targets, sums, horizons


def normalize(x: Tensor, eps: float = 1e-5) -> Tensor:
    """(x − mean) / (std + eps) over all elements, with the unbiased std; a single element gives 0."""
    if x.numel() < 2:  # the unbiased std of one element is 0/0
        return torch.zeros_like(x)
    return (x - x.mean()) / (x.std() + eps)


def discount_cumsum(x: npt.ArrayLike, discount: float) -> npt.NDArray[Any]:
    """Discounted sums to the end, y_t = x_t + discount · y_{t+1}, along axis 0 of x `[T, …]`; keeps x's float dtype.

    The scan of `backward_recurrence` for one constant decay, in NumPy: y_t sums k terms, and each step doubles k.
    """
    x = np.asarray(x)
    y = np.array(x, dtype=x.dtype if np.issubdtype(x.dtype, np.floating) else np.float64)
    k = 1
    while k < len(y):
        y[:-k] += discount**k * y[k:]
        k *= 2
    return y


def _bootstrap_and_cut(next_values: Tensor, terminals: Tensor, dones: Tensor) -> tuple[Tensor, Tensor]:
    """(1 − e_t) V'_t, and the bool mask of the rows that nothing is carried back into: boundaries and the last row."""
    terminal = terminals.bool()
    cut = terminal | dones.bool()
    cut[-1] = True
    return torch.where(terminal, 0.0, next_values), cut  # a product would let NaN · 0 through


def _carry(cut: Tensor, like: Tensor) -> Tensor:
    """κ_t in the dtype of the data: a number times a bool tensor would round γ to float32."""
    return (~cut).to(like.dtype)


def _next(y: Tensor, at_cut: Tensor, cut: Tensor) -> Tensor:
    """y_{t+1} where row t is carried on, `at_cut`_t elsewhere. The row that roll wraps around is always cut."""
    return torch.where(cut, at_cut, y.roll(-1, dims=0))
