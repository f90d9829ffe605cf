"""One rollout of GAE in which demonstrations are replayed (PPO+D, arXiv 2007.03328): for sparse rewards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pytorchrl import tree
from pytorchrl.agent.actors.base import Actor
from pytorchrl.agent.algorithms.base import Algorithm
from pytorchrl.agent.env.vec_env import VecEnv
from pytorchrl.agent.storages import demo_files
from pytorchrl.agent.storages.base import Sample
from pytorchrl.agent.storages.demos import (
    ID,
    LENGTH,
    MAX_VALUE,
    TOTAL,
    Demo,
    OpenEpisodes,
    draw_value,
    earned,
    in_stored_types,
    make_demo,
    weakest,
)
from pytorchrl.agent.storages.frames import frame
from pytorchrl.agent.storages.on_policy.gae_buffer import GAEBuffer
from pytorchrl.agent.storages.replays import Replays
from pytorchrl.errors import ConfigError, RLError
from pytorchrl.keys import ACT, DONE2, OBS, REW, TERMINAL, VAL
from pytorchrl.parameters import NonNegativeFloat, NonNegativeInt, PositiveInt, UnitFloat
from pytorchrl.tree import Tree

LOG = logging.getLogger("pytorchrl")


class PPODBuffer(GAEBuffer):
    """GAE rollouts whose episodes are partly demonstrations, with log-probability 0: the demonstrator is certain.

    When an episode of an environment ends, its next one is a reward demo with probability ρ, a value demo with
    probability φ, else a real one; meanwhile the environment waits. Reward demos are what humans recorded, and episodes
    that earned as much; value demos are others in which a high value was met, drawn in proportion to p_i^α, with
    p_i = MaxValue_i − min(0, min_j MaxValue_j). With every new reward demo, ρ grows and φ falls.

    Parameters
        rho: ρ, the probability of replaying a reward demo.
        phi: φ, the probability of replaying a value demo.
        alpha: α, how much value demos of a higher value are preferred.
        total_buffer_demo_capacity: reward and value demos that are kept.
        initial_human_demos_dir: folder of demos that are always kept.
        initial_agent_demos_dir: folder of demos that better ones may replace.
        supplementary_demos_dir: folder that demos may be put into while training goes on.
        target_agent_demos_dir: folder that the agent's best demos are saved in.
        num_agent_demos_to_save: how many of them.
        initial_reward_threshold: what an episode must earn to become a reward demo, at first; null for what the worst
            demo earned, and more than 0.
        save_demos_every: rollouts between saves.
        demo_dtypes: number types that demos are kept in.
    """

    demos_data_fields: ClassVar[tuple[str, ...]] = (OBS, ACT, REW)
    on_policy_data_fields: ClassVar[tuple[str, ...]] = GAEBuffer.storage_tensors
    fixed_parameters = ("initial_human_demos_dir", "initial_agent_demos_dir", "initial_reward_threshold", "demo_dtypes")

    def __init__(
        self,
        size: PositiveInt,
        device: torch.device | str,
        actor: Actor,
        algorithm: Algorithm | None,
        envs: VecEnv | None,
        rho: UnitFloat = 0.1,
        phi: UnitFloat = 0.3,
        gae_lambda: UnitFloat = 0.95,
        alpha: NonNegativeFloat = 10,
        total_buffer_demo_capacity: NonNegativeInt = 51,
        initial_human_demos_dir: str | None = None,
        initial_agent_demos_dir: str | None = None,
        supplementary_demos_dir: str | None = None,
        target_agent_demos_dir: str | None = None,
        num_agent_demos_to_save: NonNegativeInt = 10,
        initial_reward_threshold: float | None = None,
        save_demos_every: PositiveInt = 10,
        demo_dtypes: dict[str, Any] = {OBS: np.float32, ACT: np.float32, REW: np.float32},  # noqa: B006  copied at once
    ) -> None:
        super().__init__(size, device, actor, algorithm, envs, gae_lambda)
        _check_shares(rho, phi)
        self.rho, self.phi, self.alpha = rho, phi, alpha
        self.total_buffer_demo_capacity = total_buffer_demo_capacity
        self.initial_human_demos_dir = initial_human_demos_dir
        self.initial_agent_demos_dir = initial_agent_demos_dir
        self.supplementary_demos_dir = supplementary_demos_dir
        self.target_agent_demos_dir = target_agent_demos_dir
        self.num_agent_demos_to_save = num_agent_demos_to_save
        self.initial_reward_threshold = initial_reward_threshold
        self.save_demos_every = save_demos_every
        self.demo_dtypes = demo_files.number_types(demo_dtypes)
        # Those of humans come first.
        self.reward_demos: list[Demo] = []
        self.num_human_demos = 0
        self.value_demos: list[Demo] = []
        self.rollouts = 0
        self._phi_0 = phi
        self._next_id = 0
        self._taken: list[str] = []  # supplementary files that were looked at
        self._complaints: dict[str, str] = {}  # what was last said about those that could not be read
        self._episodes = OpenEpisodes()
        self._replays = Replays(self.frame_stack)
        self._demo_samples = 0
        self._metrics: dict[str, Tensor] = {}
        demo_files.require_folder(supplementary_demos_dir)
        self.load_initial_demos()
        given = [] if initial_reward_threshold is None else [initial_reward_threshold]
        self.reward_threshold = max([*given, *self._smallest_reward()], default=0.0)
        self._phi_steps = total_buffer_demo_capacity - len(self.reward_demos)

    # Demos that come from files

    def load_demo(self, demo_path: str | Path) -> Demo:
        """The demonstration of one file, in memory; ``ConfigError`` (a ``ValueError``) with path and cause."""
        found = demo_files.read_demo(demo_path)
        try:
            demo_files.check_recording(found, self.frame_skip, self.frame_stack)
            if self.envs is not None:
                demo_files.check_fits(found, self.envs.observation_space, self.envs.action_space, self.frame_stack)
        except ConfigError as error:
            raise ConfigError(f"{demo_path}: {error}") from None
        return self._demo(found[OBS], found[ACT], found[REW])

    def _demo(self, obs: Any, action: Any, reward: Any) -> Demo:
        self._next_id += 1
        return make_demo({OBS: obs, ACT: action, REW: reward}, self.demo_dtypes, self._next_id)

    def load_initial_demos(self) -> None:
        """All demos of the two initial folders, those of humans first, each in the order of their names."""
        human, agent = map(demo_files.files_in, (self.initial_human_demos_dir, self.initial_agent_demos_dir))
        count, capacity = len(human) + len(agent), self.total_buffer_demo_capacity
        if count > capacity:
            folder = (agent or human)[-1].parent
            raise ConfigError(f"{folder}: {count} demos to begin with, and total_buffer_demo_capacity is {capacity}")
        self.reward_demos = [self.load_demo(path) for path in (*human, *agent)]
        self.num_human_demos = len(human)

    def load_supplementary_demos(self) -> None:
        """Demos that were put into the supplementary folder since the last call, if they earned enough.

        A file that cannot be read (it may still be being written) is logged, once, and tried again.
        """
        if self.supplementary_demos_dir is None:
            return
        for path in sorted(Path(self.supplementary_demos_dir).glob("*.npz")):
            if path.name in self._taken or not path.is_file():
                continue
            try:
                demo = self.load_demo(path)
            except ConfigError as error:
                if self._complaints.get(path.name) != str(error):
                    self._complaints[path.name] = str(error)
                    LOG.warning("a supplementary demo is passed over for now: %s", error)
                continue
            self._taken.append(path.name)
            if demo[TOTAL] >= self.reward_threshold:
                self._add_reward_demo(demo)

    def save_demos(self) -> None:
        """The best of the agents' demos as ``reward_demo_1.npz`` (the best one), … in the target folder."""
        if self.target_agent_demos_dir is None:
            return
        folder, worker = Path(self.target_agent_demos_dir), getattr(self.envs, "index_col_worker", 1)
        suffix = "" if worker == 1 else f"_{worker}"
        best = sorted(self.reward_demos[self.num_human_demos :], key=lambda demo: (-demo[TOTAL], demo[LENGTH]))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for rank, demo in enumerate(best[: self.num_agent_demos_to_save], 1):
                path, plain = folder / f"reward_demo_{rank}{suffix}.npz", in_stored_types(demo, self.data)
                demo_files.write_demo(path, plain, self.frame_skip, self.frame_stack)
        except OSError as error:
            raise RLError(
                f"{folder}: demos cannot be saved ({error.strerror})", "Give another target_agent_demos_dir."
            ) from error

    # Demos that are episodes

    def track_potential_demos(self, sample: Sample) -> None:
        """Follow the real episodes; one that ended becomes a reward demo, a value demo or nothing.

        It is cut after its last positive reward.
        """
        self._episodes.append(
            {OBS: frame(sample[OBS], self.frame_stack)} | {key: tree.first_leaf(sample[key]) for key in (ACT, REW, VAL)}
        )
        if sample[DONE2].any():
            for env in sample[DONE2].flatten().nonzero().flatten().tolist():
                self._judge(self._episodes.episode(env))
                self._episodes.begin(env)

    def _judge(self, episode: dict[str, Tree] | None) -> None:
        if episode is None:
            return
        length, total = earned(tree.first_leaf(episode[REW]))
        if total >= self.reward_threshold and (total > 0 or self.initial_reward_threshold is not None):
            self._add_reward_demo(self._cut(episode, length))
            return
        max_value = float(tree.first_leaf(episode[VAL])[:length].max())
        room = len(self.reward_demos) + len(self.value_demos) < self.total_buffer_demo_capacity
        if room or any(max_value >= demo[MAX_VALUE] for demo in self.value_demos):
            self.value_demos.append(self._cut(episode, length) | {MAX_VALUE: max_value})
            self.check_demo_buffer_capacity()

    def _cut(self, episode: dict[str, Tree], length: int) -> Demo:
        arrays = [tree.tree_map(lambda part: part[:length].cpu().numpy(), episode[key]) for key in (OBS, ACT, REW)]  # type: ignore[arg-type,return-value]
        return self._demo(*arrays)

    def _add_reward_demo(self, demo: Demo) -> None:
        self.reward_demos.append(demo)
        self.check_demo_buffer_capacity()
        self.anneal_parameters()
        self.reward_threshold = max([self.reward_threshold, *self._smallest_reward()])

    def _smallest_reward(self) -> list[float]:
        """What the worst reward demo earned; empty if there is none."""
        return [min(demo[TOTAL] for demo in self.reward_demos)] if self.reward_demos else []

    def check_demo_buffer_capacity(self) -> None:
        """Drop demos beyond the capacity: value demos of the lowest value first, then agents' of the lowest reward."""
        while len(self.reward_demos) + len(self.value_demos) > self.total_buffer_demo_capacity:
            if self.value_demos:
                del self.value_demos[int(np.argmin([demo[MAX_VALUE] for demo in self.value_demos]))]
            elif len(self.reward_demos) > self.num_human_demos:
                del self.reward_demos[weakest(self.reward_demos, self.num_human_demos, len(self.reward_demos))]
            else:
                return

    def anneal_parameters(self) -> None:
        """Move φ₀ / n_V from φ to ρ: φ is 0 after n_V new reward demos, the room that was left at the start."""
        if self._phi_steps > 0:
            step = self._phi_0 / self._phi_steps
            moved = step if self.phi - step > 1e-9 else self.phi
            self.rho, self.phi = self.rho + moved, self.phi - moved

    # Replay

    @property
    def replaying(self) -> Tensor | None:
        """Which environments a demo is replayed in, ``[N]``; None before their number is known."""
        N = self.envs.num_envs if self.envs is not None else len(self._episodes.starts)
        if not N:
            return None
        mask = torch.zeros(N, dtype=torch.bool)
        if self._replays.running:
            mask[list(self._replays.running)] = True
        return mask

    def check_collection(self, envs: VecEnv, scales_rewards: bool) -> None:
        if scales_rewards:
            raise ConfigError(
                "PPODBuffer compares the rewards of episodes and demos: they cannot be normalized",
                "Set env.normalize_rewards=false.",
            )
        if envs.backend_name in ("vector", "envpool"):
            raise ConfigError(
                f"backend '{envs.backend_name}' steps all environments at once: none can wait while a demo is replayed",
                "Use backend sync or async.",
            )
        if self.rho + self.phi >= 1:
            raise ConfigError("rho + phi is 1: no episode would be real", "Lower one of them.")

    def sample_demo(self, env_id: int) -> Demo | None:
        """Draw what the next episode of an environment is: a demo, which is then replayed, or None for a real one."""
        demo = self._drawn()
        self._replays.begin(env_id, demo)
        return demo

    def _drawn(self) -> Demo | None:
        u, which = torch.rand(2, dtype=torch.float64, generator=self.generator).tolist()
        if u < self.rho and self.reward_demos:
            return self.reward_demos[int(which * len(self.reward_demos))]
        if self.rho <= u < self.rho + self.phi and self.value_demos:
            return draw_value(self.value_demos, self.alpha, which)
        return None

    def next_inputs(self, obs: Tree, rhs: dict[str, Tensor], done: Tensor) -> tuple[Tree, dict[str, Tensor], Tensor]:
        """The environments' own, or the demo's where one is replayed; where episodes ended, the next one is drawn."""
        ended = done.flatten().nonzero().flatten().tolist() if done.any() else []
        returning, self._replays.ended = self._replays.ended, []
        for env in sorted({*ended, *returning} - set(self._replays.running)):
            if self.sample_demo(env) is not None:
                self._episodes.leave(env)
        if returning:
            done = done.index_fill(0, torch.tensor(returning, device=done.device), 1.0)
        return self._replays.inputs(obs, rhs, done) if self._replays.running else (obs, rhs, done)

    def episodes_cut(self) -> None:
        self._replays.clear()
        self._episodes.begin_all()

    # The rollout

    def init_tensors(self, sample: Sample) -> None:
        super().init_tensors(sample)
        for demo in (*self.reward_demos, *self.value_demos):
            demo_files.check_alike(demo, frame(sample[OBS], self.frame_stack), sample[ACT])

    def insert_transition(self, sample: Sample) -> None:
        """Write the transition; rows of environments in replay get the demo's action, reward, successor and end."""
        sample = {TERMINAL: sample[DONE2], **sample}
        if self._replays.running:
            sample = self._replays.written_over(sample)
        if not self.data:
            self.init_tensors(sample)
        self.track_potential_demos(sample)
        super().insert_transition(sample)
        self._demo_samples += len(self._replays.running)
        self._replays.go_on()

    def reset(self) -> None:
        super().reset()
        self._demo_samples = 0

    def before_gradients(self) -> None:
        """Returns and advantages; every so often, look for supplementary demos and save the best ones."""
        super().before_gradients()
        self.load_supplementary_demos()
        self.rollouts += 1
        if self.rollouts % self.save_demos_every == 0:
            self.save_demos()
        figures = {
            "RewardDemos": len(self.reward_demos),
            "ValueDemos": len(self.value_demos),
            "Rho": self.rho,
            "Phi": self.phi,
            "RewardThreshold": self.reward_threshold,
            "DemoSamples": self._demo_samples,
        }
        self._metrics = {name: torch.tensor(float(value)) for name, value in figures.items()}

    def after_gradients(self, batch: Mapping[str, Any], info: dict[str, Tensor]) -> dict[str, Tensor]:
        """The next insert opens a new rollout; info is told how the demos stand."""
        info.update(self._metrics)
        return super().after_gradients(batch, info)

    # State

    def get_state(self) -> dict[str, Any]:
        demos = {demo[ID]: dict(demo) for demo in (*self.reward_demos, *self.value_demos, *self._replays.demos())}
        return super().get_state() | {
            "demos": list(demos.values()),
            "reward_demos": [demo[ID] for demo in self.reward_demos],
            "value_demos": [demo[ID] for demo in self.value_demos],
            "replays": self._replays.get_state(),
            "episodes": self._episodes.get_state(),
            "taken": list(self._taken),
            "counts": {name: getattr(self, name) for name in (*_COUNTS, *_PRIVATE_COUNTS)},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        demos = {demo[ID]: dict(demo) for demo in state["demos"]}
        self.reward_demos = [demos[number] for number in state["reward_demos"]]
        self.value_demos = [demos[number] for number in state["value_demos"]]
        self._replays.set_state(state["replays"], demos)
        self._episodes.set_state(state["episodes"], self.device)
        self._taken = list(state["taken"])
        for name, value in state["counts"].items():
            setattr(self, name, value)

    def _set_parameter(self, name: str, value: Any) -> None:
        """ρ and φ stay a share of all episodes; a new capacity is kept at once."""
        if name in ("rho", "phi"):
            _check_shares(**{"rho": self.rho, "phi": self.phi, name: value})
        if name == "total_buffer_demo_capacity" and value < self.num_human_demos:
            raise ConfigError(f"{name}: {value}, and {self.num_human_demos} demos of humans are kept in any case")
        super()._set_parameter(name, value)
        if name == "total_buffer_demo_capacity":
            self.check_demo_buffer_capacity()


# Numbers of a PPODBuffer's state.
_COUNTS = ("rho", "phi", "reward_threshold", "num_human_demos", "rollouts")
_PRIVATE_COUNTS = ("_phi_0", "_phi_steps", "_next_id", "_demo_samples")


def _check_shares(rho: float, phi: float) -> None:
    if rho < 0 or phi < 0 or rho + phi > 1 + 1e-9:
        raise ConfigError(f"rho {rho:g} and phi {phi:g}: expected shares of all episodes, together at most 1")
