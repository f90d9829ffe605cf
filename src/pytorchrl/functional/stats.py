"""Statistics that run along with training. Their states are dicts of tensors and floats, ready for a checkpoint."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pytorchrl.functional.returns import backward_recurrence


class RunningMeanStd:
    """Mean and population variance of everything seen so far, in float64, batch by batch.

    Batches are merged by the parallel algorithm of Chan, Golub and LeVeque, so how the data are cut into batches does
    not matter. It starts as if 1e-4 samples of mean 0 and variance 1 had been seen: never a division by zero.

    Args:
        shape: shape of one sample.
        device: where the moments are kept; batches must be there too.
    """

    def __init__(self, shape: Sequence[int] = (), device: torch.device | str = "cpu") -> None:
        self.mean = torch.zeros(tuple(shape), dtype=torch.float64, device=device)
        self.var = torch.ones(tuple(shape), dtype=torch.float64, device=device)
        self.count = 1e-4

    @property
    def std(self) -> Tensor:
        """√(var + 1e-8), what to divide by."""
        return (self.var + 1e-8).sqrt()

    def update(self, batch: Tensor) -> None:
        """Merge a batch `[B, *shape]` of any real dtype; an empty one changes nothing."""
        n = len(batch)
        if n == 0:
            return
        var, mean = torch.var_mean(batch.double(), dim=0, correction=0)
        delta, total = mean - self.mean, self.count + n
        self.mean = self.mean + delta * (n / total)
        self.var = (self.var * self.count + var * n + delta.square() * (self.count * n / total)) / total
        self.count = total

    def normalize(self, x: Tensor, clip: float | None = None) -> Tensor:
        """(x − mean) / std, clipped to ±clip if given, in x's float dtype (the default one for integers)."""
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        z = (x - self.mean.to(dtype)) / self.std.to(dtype)
        return z if clip is None else z.clamp(-clip, clip)

    def get_state(self) -> dict[str, Tensor | float]:
        return {"mean": self.mean.clone(), "var": self.var.clone(), "count": self.count}

    def set_state(self, state: Mapping[str, Tensor | float]) -> None:
        moments = {key: torch.as_tensor(state[key]).to(self.mean, copy=True) for key in ("mean", "var")}
        for key, value in moments.items():
            if value.shape != self.mean.shape:
                raise ValueError(f"{key} has shape {tuple(value.shape)}, expected {tuple(self.mean.shape)}")
        self.mean, self.var, self.count = moments["mean"], moments["var"], float(state["count"])


class ForwardDiscountedSum:
    """g_t = γ g_{t−1} + i_t forward in time per environment, carried from call to call and never reset.

    RND (arXiv 1810.12894) divides intrinsic rewards by the standard deviation of this sum. It is kept in float64.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.last = torch.zeros((), dtype=torch.float64)  # broadcasts until the first call tells the shape

    def update(self, x: Tensor) -> Tensor:
        """Continue with x `[T, N]` or `[T, N, 1]`; returns every g_t, same shape, float64."""
        x = x.double()
        x = torch.cat([x[:1] + self.gamma * self.last.to(x.device), x[1:]])
        sums = backward_recurrence(x.flip(0), torch.full_like(x, self.gamma)).flip(0)
        self.last = sums[-1].clone()
        return sums

    def get_state(self) -> dict[str, Tensor]:
        return {"last": self.last.clone()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        self.last = state["last"].to(torch.float64, copy=True)
