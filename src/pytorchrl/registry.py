"""Every name that a configuration may use, and where its class lives. Nothing is imported before it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from pytorchrl.errors import ConfigError, suggestion

ALGORITHMS = {
    "A2C": "pytorchrl.agent.algorithms.on_policy.a2c",
    "PPO": "pytorchrl.agent.algorithms.on_policy.ppo",
    "PPOD": "pytorchrl.agent.algorithms.on_policy.ppod",
    "RND_PPO": "pytorchrl.agent.algorithms.on_policy.rnd_ppo",
    "DDQN": "pytorchrl.agent.algorithms.off_policy.ddqn",
    "DDPG": "pytorchrl.agent.algorithms.off_policy.ddpg",
    "TD3": "pytorchrl.agent.algorithms.off_policy.td3",
    "SAC": "pytorchrl.agent.algorithms.off_policy.sac",
    "MPO": "pytorchrl.agent.algorithms.off_policy.mpo",
    "MPC_RS": "pytorchrl.agent.algorithms.model_based.mpc_rs",
    "MPC_CEM": "pytorchrl.agent.algorithms.model_based.mpc_cem",
    "MPC_PDDM": "pytorchrl.agent.algorithms.model_based.mpc_pddm",
}

STORAGES = {
    "VanillaOnPolicyBuffer": "pytorchrl.agent.storages.on_policy.vanilla_on_policy_buffer",
    "GAEBuffer": "pytorchrl.agent.storages.on_policy.gae_buffer",
    "VTraceBuffer": "pytorchrl.agent.storages.on_policy.vtrace_buffer",
    "PPODBuffer": "pytorchrl.agent.storages.on_policy.ppod_buffer",
    "ReplayBuffer": "pytorchrl.agent.storages.off_policy.replay_buffer",
    "NStepBuffer": "pytorchrl.agent.storages.off_policy.nstep_buffer",
    "PERBuffer": "pytorchrl.agent.storages.off_policy.per_buffer",
    "EREBuffer": "pytorchrl.agent.storages.off_policy.ere_buffer",
    "HERBuffer": "pytorchrl.agent.storages.off_policy.her_buffer",
    "MBReplayBuffer": "pytorchrl.agent.storages.model_based.mb_buffer",
}

ACTORS = {
    "OnPolicyActor": "pytorchrl.agent.actors.on_policy_actor",
    "OffPolicyActor": "pytorchrl.agent.actors.off_policy_actor",
    "ModelBasedPlannerActor": "pytorchrl.agent.actors.model_based_planner_actor",
}

# The actor and storage that go with an algorithm unless others are named.
COMPANIONS = {
    "A2C": ("OnPolicyActor", "VanillaOnPolicyBuffer"),
    "PPO": ("OnPolicyActor", "GAEBuffer"),
    "PPOD": ("OnPolicyActor", "PPODBuffer"),
    "RND_PPO": ("OnPolicyActor", "GAEBuffer"),
    "DDQN": ("OffPolicyActor", "ReplayBuffer"),
    "DDPG": ("OffPolicyActor", "ReplayBuffer"),
    "TD3": ("OffPolicyActor", "ReplayBuffer"),
    "SAC": ("OffPolicyActor", "ReplayBuffer"),
    "MPO": ("OffPolicyActor", "ReplayBuffer"),
    "MPC_RS": ("ModelBasedPlannerActor", "MBReplayBuffer"),
    "MPC_CEM": ("ModelBasedPlannerActor", "MBReplayBuffer"),
    "MPC_PDDM": ("ModelBasedPlannerActor", "MBReplayBuffer"),
}

# Terms that may join an algorithm's policy loss.
ADDONS = {
    "AttractionKL": "pytorchrl.agent.algorithms.policy_loss_addons.reference_kl",
    "RepulsionKL": "pytorchrl.agent.algorithms.policy_loss_addons.reference_kl",
    "RewardPredictor": "pytorchrl.agent.algorithms.policy_loss_addons.predictors",
    "ReturnPredictor": "pytorchrl.agent.algorithms.policy_loss_addons.predictors",
}

SCHEMES = {
    "single": "one process collects and learns",
    "a2c": "collectors play in step with each other, and one process learns from all of them",
    "a3c": "workers collect for themselves; each gradient is applied as it comes (arXiv 1602.01783)",
    "dppo": "workers collect for themselves; their gradients are averaged (arXiv 1707.02286)",
    "ddppo": "workers average among themselves, without waiting for stragglers (arXiv 1911.00357)",
    "impala": "collectors never wait; V-trace corrects for weights that lag behind (arXiv 1802.01561)",
    "apex": "collectors, an epsilon each, fill a prioritized replay beside the learner (arXiv 1803.00933)",
    "r2d2": "Ape-X with memory: sequences, burnt in (Kapturowski et al., ICLR 2019)",
    "rapid": "collectors never wait; the gradients of several learners are averaged (arXiv 1912.06680)",
}

# By kind: where each class lives, and every name that can be chosen.
KINDS = {"algorithm": ALGORITHMS, "storage": STORAGES, "actor": ACTORS}
NAMES = {**KINDS, "scheme": SCHEMES}
# What is part of a component, not a section of a configuration.
PARTS = {"policy-loss add-on": ADDONS}


def canonical_name(kind: str, name: str) -> str:
    """The registered spelling of a name, whatever its case; ``ConfigError`` names the nearest."""
    known = {**NAMES, **PARTS}[kind]
    folded = {candidate.lower(): candidate for candidate in known}
    if name.lower() not in folded:
        raise ConfigError(f"unknown {kind} '{name}'", suggestion(name, known))
    return folded[name.lower()]


def learns_from(algorithm: str) -> str:
    """What an algorithm usually learns from: rollouts or replays."""
    return "rollouts" if ".on_policy." in STORAGES[COMPANIONS[algorithm][1]] else "replays"


def load_class(kind: str, name: str) -> Any:
    """The class registered under ``name``."""
    name = canonical_name(kind, name)
    return getattr(importlib.import_module({**KINDS, **PARTS}[kind][name]), name)
