"""One rollout with V-trace targets (IMPALA, arXiv 1802.01561): for data of a policy that lags behind."""

from __future__ import annotations

import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.on_policy_actor import VALUE_HEADS
from pytorchrl.agent.storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from pytorchrl.functional.returns import normalize, vtrace
from pytorchrl.keys import ACT, ADV, DONE, LOGP, OBS, RET, REW, RHS, VAL


class VTraceBuffer(VanillaOnPolicyBuffer):
    """A rollout whose returns and advantages are corrected for the policy that collected it.

    Values and log-probabilities are those of the present actor once ``before_gradients`` was called.
    """

    def compute_targets(self) -> None:
        """V-trace targets and advantages of the rows that were inserted, by the present actor."""
        self.compute_vtrace()

    def compute_vtrace(self, clip_rho_thres: float = 1.0, clip_c_thres: float = 1.0) -> None:
        """RET := v, ADV := the normalized policy-gradient advantage, LOGP := log π of the present actor; λ = 1.

        ρ_t = min(clip_rho_thres, π/μ) and c_t = min(clip_c_thres, π/μ) with the behavior policy's stored log μ.
        """
        L = self.size
        new_log_probs = self.get_updated_action_log_probs()
        values, log_probs, returns, rewards, dones = (
            tree.first_leaf(self.data[key]) for key in (VAL, LOGP, RET, REW, DONE)
        )
        # A truncation enters through the reward, so that every boundary is treated as terminal.
        ended = dones[1 : L + 1]
        targets, advantages = vtrace(
            self._with_truncation_values(rewards[:L]),
            values[:L],
            values[1 : L + 1],
            ended,
            ended,
            new_log_probs - log_probs[:L],
            self.algorithm.gamma,  # type: ignore[union-attr]
            clip_rho=clip_rho_thres,
            clip_c=clip_c_thres,
        )
        returns[:L], returns[L] = targets, values[L]
        log_probs[:L] = new_log_probs
        tree.copy_into(self.data[ADV], slice(0, L), normalize(advantages))

    @torch.no_grad()
    def get_updated_action_log_probs(self) -> Tensor:
        """log π(a_t|o_t) of the present actor, ``[L, N, 1]``, from one pass in time order; values become its own."""
        L = self.size
        rows = {key: tree.flatten_time(self.data[key], L) for key in (OBS, DONE, ACT)}
        dist, values, rhs = self.actor(rows[OBS], tree.index(self.data[RHS], 0), rows[DONE])
        log_probs: Tensor = dist.log_prob(rows[ACT])
        for key, head in VALUE_HEADS.items():
            if key in self.data:
                stored = tree.first_leaf(self.data[key])
                stored[:L] = values[head].view_as(stored[:L])
        self._bootstrap(rhs)
        return log_probs.view_as(tree.first_leaf(self.data[LOGP])[:L])
