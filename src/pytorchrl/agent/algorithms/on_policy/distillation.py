"""Random network distillation (arXiv 1810.12894): how little a predictor knows of a fixed random network's features."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl import tree
from pytorchrl.agent.actors.feature_extractors import make_extractor
from pytorchrl.agent.actors.initialization import HIDDEN_GAIN, orthogonal
from pytorchrl.agent.actors.normalization import make_whitening
from pytorchrl.tree import Tree

# Whitened observations end here (§2.4).
CLIP = 5.0
# Observations that are scored at once.
CHUNK = 4096


class Distillation(nn.Module):
    """A frozen target network f, a predictor f̂, and the moments that whiten what both read: the newest frame.

    The predictor has two layers more than the target, so that it can tell what the target tells.

    Parameters
        space: the observation space.
        frame_stack: frames in an observation.
        network: name or class of the feature extractor below the last layers; None takes what fits.
        target_kwargs: its parameters in the target.
        predictor_kwargs: its parameters in the predictor.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        frame_stack: int,
        network: str | type[nn.Module] | None,
        target_kwargs: dict[str, Any] | None,
        predictor_kwargs: dict[str, Any] | None,
    ) -> None:
        super().__init__()
        self.frame = _whitened_frame(space, frame_stack)
        self.whitening = make_whitening(self.frame, CLIP)
        target, predictor = (
            make_extractor(self.frame, network, kwargs) for kwargs in (target_kwargs, predictor_kwargs)
        )
        size: int = target.num_features  # type: ignore[assignment]
        self.target = nn.Sequential(target, _layer(size, size)).requires_grad_(False)
        width: int = predictor.num_features  # type: ignore[assignment]
        more = [_layer(width, width), nn.ReLU(), _layer(width, width), nn.ReLU(), _layer(width, size)]
        self.predictor = nn.Sequential(predictor, *more)

    def newest(self, obs: Tree) -> Tree:
        """The newest frame of observations ``[B, k·C, …]``, or of what is one already; Dict observations whole."""
        if isinstance(self.frame, spaces.Box) and self.frame.shape:
            channels = self.frame.shape[0]
            return tree.tree_map(lambda frames: frames[:, -channels:], obs)
        return obs

    def forward(self, obs: Tree) -> Tensor:
        """mean (f̂(ô) − f(ô))² over the features, ``[B, 1]``."""
        whitened = self.whitening(self.newest(obs))
        return (self.predictor(whitened) - self.target(whitened)).square().mean(-1, keepdim=True)  # type: ignore[no-any-return]

    @torch.no_grad()
    def surprise(self, obs: Tree) -> Tensor:
        """The same for observing alone, of any number of observations."""
        starts = range(0, len(tree.first_leaf(obs)), CHUNK)
        return torch.cat([self(tree.index(obs, slice(start, start + CHUNK))) for start in starts])

    def observe(self, obs: Tree) -> None:
        """Merge observations into the moments."""
        self.whitening.update(self.newest(obs))  # type: ignore[operator]

    @property
    def has_observed(self) -> bool:
        """Whether the moments are those of anything."""
        return any(bool(value >= 1) for name, value in self.whitening.named_buffers() if name.endswith("count"))


def _layer(inputs: int, outputs: int) -> nn.Linear:
    return orthogonal(nn.Linear(inputs, outputs), HIDDEN_GAIN)


def _whitened_frame(space: gym.Space[Any], frame_stack: int) -> gym.Space[Any]:
    """The space of whitened frames: an entry of a Dict is a frame by itself."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, _whitened_frame(entry, 1)) for key, entry in space.spaces.items()])
    shape = space.shape or ()
    if shape and shape[0] % frame_stack == 0:
        shape = (shape[0] // frame_stack, *shape[1:])
    return spaces.Box(-CLIP, CLIP, shape, np.float32)
