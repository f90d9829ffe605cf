"""From layers to one configuration: names, aliases, presets, and 10,000 mutated files without a crash."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl import config as config_module
from pytorchrl import registry
from pytorchrl.aliases import ALIASES
from pytorchrl.component import Component
from pytorchrl.config import parse_override, resolve
from pytorchrl.errors import ConfigError
from pytorchrl.options import RunConfig
from pytorchrl.parameters import Node, PositiveFloat, PositiveInt, UnitFloat
from pytorchrl.presets import presets_of
from pytorchrl.strict_yaml import parse_yaml

ENV = "env: {id: CartPole-v1}\n"
TINY = {"storage.size": 16, "env.num_envs": 2, "algorithm.num_epochs": 1}


def resolved(*words: str, algorithm: str = "ppo", env: str = "CartPole-v1", **kwargs: Any) -> RunConfig:
    """The configuration of a command line's ``--set`` words."""
    return resolve(algorithm, env, overrides=[parse_override(word) for word in words], **kwargs)


class TestLayers:
    def test_the_preset_of_the_environment_is_used(self) -> None:
        config = resolved()
        preset = presets_of("PPO")["CartPole-v1"].value
        assert config.preset == "CartPole-v1"
        assert config.env.num_envs == int(preset["env"].value["num_envs"].value)
        assert config.storage.config["size"] == int(preset["storage"].value["config"].value["size"].value)

    def test_another_environment_takes_the_general_one(self) -> None:
        assert resolved(env="Taxi-v4").preset == "default"

    def test_a_family_shares_a_preset(self) -> None:
        assert resolved(env="ALE/Pong-v5").preset == resolved(env="ALE/Breakout-v5").preset == "ALE/*"

    def test_a_preset_can_be_named_and_declined(self) -> None:
        assert resolved(env="Acrobot-v1", preset="CartPole-v1").preset == "CartPole-v1"
        bare = resolved("run.steps=1", "storage.size=2", preset="none")
        assert bare.preset is None
        assert bare.algorithm.config == {
            name: item.default for name, item in registry.load_class("algorithm", "PPO").configurable().items()
        }

    def test_later_layers_win(self, tmp_path: Path) -> None:
        file = tmp_path / "run.yaml"
        file.write_text(
            "algorithm: {name: ppo, config: {gamma: 0.5}}\nrun: {steps: 3, seed: 7}\nenv: {id: CartPole-v1}"
        )
        config = resolve(None, None, config=file, preset="CartPole-v1", overrides=[parse_override("seed=8")])
        assert (config.algorithm.config["gamma"], config.run.steps, config.run.seed) == (0.5, 3, 8)
        assert config.env.num_envs == resolved().env.num_envs  # of the preset below
        other = resolve("PPO", "Acrobot-v1", config=file, overrides=[parse_override("storage.size=2")])
        assert (other.env.id, other.preset) == ("Acrobot-v1", None)

    def test_sections_may_be_empty(self, tmp_path: Path) -> None:
        file = tmp_path / "run.yaml"
        file.write_text(
            "algorithm: {name: PPO, config: }\nstorage: {config: {size: 3}}\nactor:\nenv: {id: CartPole-v1}"
        )
        assert resolve(None, None, config=file, overrides=[parse_override("steps=1")]).storage.config["size"] == 3

    def test_a_module_of_a_file_is_refused_unless_it_is_named_again(self, tmp_path: Path) -> None:
        file = tmp_path / "run.yaml"
        text = resolved().to_yaml().replace("CartPole-v1", "gymnasium:CartPole-v1")
        file.write_text(text)
        with pytest.raises(ConfigError, match="would import a module"):
            resolve(None, None, config=file)
        assert resolve(None, "gymnasium:CartPole-v1", config=file).env.id == "gymnasium:CartPole-v1"


class TestNames:
    @pytest.mark.parametrize("spelling", ["PPO", "ppo", "pPo"])
    def test_case_does_not_matter(self, spelling: str) -> None:
        assert resolved("storage.name=gaebuffer", algorithm=spelling).storage.name == "GAEBuffer"

    @pytest.mark.parametrize(
        ("word", "section", "name", "value"),
        [
            ("gamma=0.5", "algorithm", "gamma", 0.5),
            ("size=5", "storage", "size", 5),
            ("gae_lambda=0.5", "storage", "gae_lambda", 0.5),
            ("shared_policy_value_network=yes", "actor", "shared_policy_value_network", True),
        ],
    )
    def test_bare_names_find_their_section(self, word: str, section: str, name: str, value: Any) -> None:
        config = resolved(word)
        assert getattr(config, section).config[name] == value
        assert config.notes == []

    def test_bare_options(self) -> None:
        config = resolved("seed=9", "steps=77", "num_envs=3", "logger=[csv]", "kwargs.x.y=1")
        assert (config.run.seed, config.run.steps, config.env.num_envs, config.run.logger) == (9, 77, 3, ("csv",))
        assert config.env.kwargs == {"x": {"y": 1}}

    def test_null_restores_what_is_open(self) -> None:
        assert resolved("run.log_every=null").run.log_every is None

    def test_only_what_the_named_classes_have(self) -> None:
        config = resolved("storage.name=VanillaOnPolicyBuffer")
        assert set(config.storage.config) == set(
            registry.load_class("storage", "VanillaOnPolicyBuffer").configurable()
        )  # the preset's gae_lambda is not for it
        with pytest.raises(ConfigError, match="VanillaOnPolicyBuffer has no parameter 'gae_lambda'"):
            resolved("storage.name=VanillaOnPolicyBuffer", "storage.gae_lambda=0.5")

    def test_annealing_names_a_number_of_the_algorithm(self) -> None:
        assert resolved("anneal.lr=0", "anneal.gamma=1").anneal == {"lr": 0.0, "clip_param": 0.0, "gamma": 1.0}
        with pytest.raises(ConfigError, match=r"anneal\.lr: expected a number of at least 0"):
            resolved("anneal.lr=-1")


class OffPolicy(Component):
    """Stands for an off-policy algorithm.

    Parameters
        lr_q: one learning rate.
        lr_pi: the other.
    """

    def __init__(
        self,
        lr_q: PositiveFloat = 1e-4,
        lr_pi: PositiveFloat = 1e-4,
        polyak: UnitFloat = 0.995,
        mini_batch_size: PositiveInt = 64,
        start_steps: PositiveInt = 20,
        update_every: PositiveInt = 50,
        num_updates: PositiveInt = 50,
        gamma: UnitFloat = 0.99,
    ) -> None: ...


class Replay(Component):
    """Stands for a replay; it shares a name with its algorithm."""

    def __init__(self, size: PositiveInt, gamma: UnitFloat = 0.5) -> None: ...


class TestAliases:
    @pytest.mark.parametrize(
        ("word", "section", "name", "value"),
        [
            ("learning_rate=0.5", "algorithm", "lr", 0.5),
            ("ent_coef=0.5", "algorithm", "entropy_coef", 0.5),
            ("vf_coef=0.5", "algorithm", "value_loss_coef", 0.5),
            ("clip_range=0.5", "algorithm", "clip_param", 0.5),
            ("clip_coef=0.5", "algorithm", "clip_param", 0.5),
            ("n_epochs=5", "algorithm", "num_epochs", 5),
            ("update_epochs=5", "algorithm", "num_epochs", 5),
            ("num_minibatches=5", "algorithm", "num_mini_batch", 5),
            ("n_steps=5", "storage", "size", 5),
            ("num_steps=5", "storage", "size", 5),
            ("buffer_size=5", "storage", "size", 5),
        ],
    )
    @pytest.mark.parametrize("prefix", [True, False])
    def test_on_policy(self, word: str, section: str, name: str, value: Any, prefix: bool) -> None:
        config = resolved(f"{section}.{word}" if prefix else word)
        assert getattr(config, section).config[name] == value
        assert config.notes == [f"{word.partition('=')[0]} is {section}.{name} here."]

    def test_options(self) -> None:
        config = resolved("n_envs=5", "total_timesteps=6")
        assert (config.env.num_envs, config.run.steps) == (5, 6)
        assert config.notes == ["n_envs is env.num_envs here.", "total_timesteps is run.steps here."]

    @pytest.mark.parametrize(("size", "parts"), [(64, 4), (100, 2), (256, 1), (1000, 1)])
    def test_batch_size_of_a_rollout(self, size: int, parts: int) -> None:
        config = resolved(f"batch_size={size}", "n_steps=128", "n_envs=2")
        assert config.algorithm.config["num_mini_batch"] == parts
        plural = "s" if parts > 1 else ""
        assert config.notes[-1] == f"batch_size is algorithm.num_mini_batch here: 256 rows in {parts} part{plural}."
        assert "batch_size" not in config.to_yaml()

    def test_said_once(self) -> None:
        assert len(resolved("learning_rate=0.5", "algorithm.learning_rate=0.25").notes) == 1

    @pytest.fixture
    def off_policy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("stands_for_an_algorithm")
        vars(module).update(OffPolicy=OffPolicy, Replay=Replay)
        monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
        monkeypatch.setitem(registry.ALGORITHMS, "OffPolicy", module.__name__)
        monkeypatch.setitem(registry.STORAGES, "Replay", module.__name__)
        monkeypatch.setitem(registry.COMPANIONS, "OffPolicy", ("OnPolicyActor", "Replay"))

    @pytest.mark.parametrize(
        ("word", "values"),
        [
            ("tau=0.125", {"polyak": 0.875}),
            ("learning_rate=0.5", {"lr_q": 0.5, "lr_pi": 0.5}),
            ("batch_size=5", {"mini_batch_size": 5}),
            ("learning_starts=5", {"start_steps": 5}),
            ("train_freq=5", {"update_every": 5}),
            ("gradient_steps=5", {"num_updates": 5}),
        ],
    )
    @pytest.mark.usefixtures("off_policy")
    def test_off_policy(self, word: str, values: dict[str, Any]) -> None:
        config = resolved(word, "buffer_size=9", "steps=1", algorithm="offpolicy")
        assert config.algorithm.config.items() >= values.items()
        assert config.storage.config["size"] == 9
        told, path = config.notes[0], " and ".join(f"algorithm.{name}" for name in values)
        assert told == f"{word.partition('=')[0]} is {path} here{' (1 - tau)' if 'tau' in word else ''}."
        assert len(config.notes) == 2

    @pytest.mark.usefixtures("off_policy")
    def test_a_bare_name_with_two_homes_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"'gamma' could be algorithm\.gamma or storage\.gamma"):
            resolved("gamma=0.5", "size=1", "steps=1", algorithm="offpolicy")

    def test_each_is_tested(self) -> None:
        marks = [mark for test in (TestAliases.test_on_policy, TestAliases.test_off_policy) for mark in test.pytestmark]
        marks = [mark for mark in marks if mark.name == "parametrize"]
        cases = [case for mark in marks if "word" in mark.args[0] for case in mark.args[1]]
        assert {case[0].partition("=")[0] for case in cases} | {"n_envs", "total_timesteps"} == set(ALIASES)


class TestPythonValues:
    @pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, np.int64(7), np.uint8(7)])
    def test_seeds(self, seed: Any) -> None:
        assert resolve("PPO", "CartPole-v1", overrides=[("run.seed", Node.of(seed))]).run.seed == int(seed)

    @pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "1", np.float64(1.0), np.bool_(True), [1]])
    def test_what_is_no_seed(self, seed: Any) -> None:
        with pytest.raises(ConfigError, match=r"run\.seed: expected a"):
            resolve("PPO", "CartPole-v1", overrides=[("run.seed", Node.of(seed))])

    def test_kwargs_become_plain(self) -> None:
        kwargs = {"a": np.float32(0.5), "b": [np.int8(3), (True, None)], "c": {"d": "x"}}
        config = resolve("PPO", "CartPole-v1", overrides=[("env.kwargs", Node.of(kwargs))])
        assert config.env.kwargs == {"a": 0.5, "b": [3, [True, None]], "c": {"d": "x"}}
        assert type(config.env.kwargs["a"]) is float

    def test_an_object_in_kwargs_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"env\.kwargs\.reward: a function cannot be kept"):
            resolve("PPO", "CartPole-v1", overrides=[("env.kwargs.reward", Node.of(lambda: 1))])

    @pytest.mark.parametrize("name", [3, ["PPO"], True])
    def test_names_are_text(self, name: Any) -> None:
        with pytest.raises(ConfigError, match="expected a name"):
            resolve(name, "CartPole-v1")
        with pytest.raises(ConfigError, match="expected a name"):
            resolve("PPO", name)
        with pytest.raises(ConfigError, match="PPO has no preset"):
            resolve("PPO", "CartPole-v1", preset=name)


class TestWhatIsWritten:
    WORDS = (
        (),
        ("gamma=0.123456789012345", "seed=9223372036854775807"),
        ("batch_size=64", "learning_rate=1e-30", "run.log_every=7", "run.eval_every=0"),
        ("env.kwargs.text=a: b #'c", "env.kwargs.flag=true", "env.kwargs.none=null", "env.kwargs.list=[1, 2.5, x]"),
        ("env.kwargs.rows=[[1, 2], [], {a: [x], b: {}}]", "env.kwargs.digits='007'", "env.kwargs.word='null'"),
        ("env.kwargs={deep: {deeper: [1, true]}, empty: {}, nothing: []}",),
        ("storage.name=VanillaOnPolicyBuffer", "anneal.gamma=0.5", "logger=[]"),
        ("actor.feature_extractor_network=MLP", "actor.feature_extractor_kwargs={hidden_sizes: [8, 4]}"),
    )

    @pytest.mark.parametrize("words", WORDS)
    def test_it_resolves_to_the_same(self, words: tuple[str, ...], tmp_path: Path) -> None:
        config = resolved(*words)
        file = tmp_path / "config.yaml"
        file.write_text(config.to_yaml(), encoding="utf-8")
        again = resolve(None, None, config=file)
        assert again.to_yaml() == config.to_yaml()
        assert (again.algorithm, again.env, again.run, again.anneal) == (
            config.algorithm,
            config.env,
            config.run,
            config.anneal,
        )
        assert (again.notes, again.preset) == ([], None)

    def test_a_run_of_it_repeats_the_figures(self, tmp_path: Path) -> None:
        first = prl.train("ppo", "CartPole-v1", steps=512, seed=5, overrides=TINY, run=tmp_path / "first")
        again = prl.train(config=first.path / "config.yaml", run=tmp_path / "again")
        assert (again.path / "config.yaml").read_bytes() == (first.path / "config.yaml").read_bytes()
        figures = [self.without_time(run.path / "progress.csv") for run in (first, again)]
        assert figures[0] == figures[1]
        assert len(figures[0]) > 10
        assert again.scores == first.scores
        weights = [(run.path / "policy" / "policy.safetensors").read_bytes() for run in (first, again)]
        assert weights[0] == weights[1]

    @staticmethod
    def without_time(path: Path) -> list[list[str]]:
        rows = [line.split(",") for line in path.read_text().splitlines()]
        kept = [i for i, name in enumerate(rows[0]) if name not in ("time/time_elapsed", "time/fps")]
        return [[row[i] for i in kept] for row in rows]


BY_HAND = """# by hand
algorithm: {name: ppo, config: {lr: 3e-4}}
storage:
  config: {size: 64}
env: {id: CartPole-v1, kwargs: {a: [1]}}
run: {steps: 512, logger: [csv]}
anneal: {lr: 0}
"""
WORDS = """null|~|true|-1|0|1e999|nan|1.5|[1, 2]|{a: 1}|[]|{}|name|config|lr|size|PPO|module:Env-v0|!!int 3|&a x|*a
a: b|'|"|- x|\t|\x00|\ufeff|é|😀|? x|---|...|%YAML 1.2|#|:|>|env|run|anneal|batch_size|tau|learning_rate|0x10|1_000
cuda|{{|}}|<<: x|\\|\r|\u2028|\x85|9999999999999999999999999999999999999999999999999""".replace("\n", "|").split("|")


def mutated(rng: random.Random, text: str) -> str:
    """The text after one to six slips of a keyboard, an editor or an enemy."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        lines, at, word = text.split("\n"), rng.randrange(len(text) + 1), rng.choice(WORDS)
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        key, colon, rest = lines[i].partition(":")
        letter = chr(rng.choice((rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000))))
        by_lines = (
            lines[:i] + lines[i + 1 :],
            [*lines[:j], lines[i], *lines[j:]],
            [*lines[:i], " " * rng.randrange(5) + lines[i].lstrip(), *lines[i + 1 :]],
            [*lines[:i], f"{key}{colon} {word}", *lines[i + 1 :]],
            [*lines[:i], f"{word}{colon}{rest}", *lines[i + 1 :]],
        )
        by_letters = (
            text[:at] + word + text[at:],
            text[:at] + text[at + rng.randrange(1, 20) :],
            text[:at] + letter + text[at + 1 :],
            text[:at] + rng.choice("{}[],:#&*!|>'\"%@`-? \n") + text[at:],
            text[:at],
            text.replace(rng.choice(text.split() or [" "]), word, 1),
        )
        text = rng.choice(("\n".join(rng.choice(by_lines)), rng.choice(by_letters)))
    return text


def outcome(path: Path) -> str:
    """How a file is taken; whatever else than ``ConfigError`` is raised fails the test."""
    try:
        config = resolve(None, None, config=path)
    except ConfigError as error:
        told = str(error)
    else:
        return type(config).__name__
    assert told.startswith(str(path))
    return "refused"


def test_mutated_files_are_resolved_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, outcomes = random.Random(2026), Counter[str]()
    bases = [resolved().to_yaml(), BY_HAND]
    path = tmp_path / "mutated.yaml"
    for _ in range(500):
        path.write_bytes(mutated(rng, rng.choice(bases)).encode("utf-8", "surrogatepass"))
        outcomes[outcome(path)] += 1
    texts = (mutated(rng, bases[rng.random() < 0.97]) for _ in range(9_500))
    monkeypatch.setattr(config_module, "read_yaml", lambda source: parse_yaml(next(texts), str(source)))
    for _ in range(9_500):
        outcomes[outcome(path)] += 1
    assert outcomes.total() == 10_000
    assert min(outcomes["RunConfig"], outcomes["refused"]) > 500
    assert "evil" not in gym.registry
