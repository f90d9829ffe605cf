"""PPO with demonstrations (PPO+D, arXiv 2007.03328)."""

from __future__ import annotations

from pytorchrl.agent.algorithms.on_policy.ppo import PPO


class PPOD(PPO):
    """PPO that learns from rollouts with demonstrations in them: the demonstrations are its storage's, PPODBuffer."""
