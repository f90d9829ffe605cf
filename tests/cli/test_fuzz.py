"""2,000 mutated command lines: each is understood or refused with exit code 2, and none crashes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytorchrl.cli import main

BASES = [
    "train ppo CartPole-v1 --steps 256 --seed 1 --envs 2 --set algorithm.gamma=0.9 --set size=32 --quiet",
    "train PPO CartPole-v1 --preset none --set storage.size=8 --set steps=8 --device cpu --threads 1",
    "train --config run.yaml --run x --logger csv,tensorboard --eval-every 0 --checkpoint-every 9",
    "train ppo Pendulum-v1 --set env.kwargs.g=9.8 --set anneal.lr=0 --set learning_rate=1e-3 --set batch_size=64",
    "train ppo --help",
    "resume nowhere --steps 5 --quiet",
    "evaluate nowhere --episodes 3 --seed 4 --checkpoint best --json",
    "report nowhere",
    "list presets",
    "--version",
]
WORDS = """-|--|---|-h|--help|--steps|--steps=|--steps=5|--set|--set=|--set==|--set=a=b|a.b.c=1|=|.=1|..=|a..b=1
algorithm=1|-1|0|1e9|nan|٣|1_0|_|1__0|9999999999999999999999999999999|true|null|[|]|{|[1|{a: 1}|!!x|&a|*a|'|"|:|a:b
:a|\t|\n|\x00|é|😀|\ud800|$HOME|../..|/|/dev/null|run.yaml|ppo|train|list|evaluate|CartPole-v1|x:CartPole-v1|name=x
algorithm.name=x|env=3|env.id=[a]|env.id.x=1|storage.config=3|storage.config.size=3|storage.config={size: 4}|scheme.x=1
kwargs=3|run.logger=csv|anneal=0|anneal.lr=x|tau=0.1|seed=-1|size=|size={}|=size|algorithm.batch_size=3|n_envs=x"""


def mutated(rng: random.Random, words: list[str]) -> list[str]:
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        i, j = rng.randrange(len(words) + 1), rng.randrange(len(words) + 1)
        word = rng.choice(WORDS.replace("\n", "|").split("|"))
        at = rng.randrange(len(words[i]) + 1) if i < len(words) else 0
        words = rng.choice(
            (
                words[:i] + words[i + 1 :],
                [*words[:i], word, *words[i:]],
                [*words[:i], word, *words[i + 1 :]],
                [*words[:i], *words[j:]],
                [*words[:i], words[i][:at] + word + words[i][at:], *words[i + 1 :]] if i < len(words) else words,
                [*words, "--set", word],
            )
        )
    return words


def test_mutated_command_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, outcomes = random.Random(2026), Counter[str]()
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(
        "algorithm: {name: ppo}\nstorage: {config: {size: 8}}\nenv: {id: CartPole-v1}\nrun: {steps: 8}\n"
    )
    trained: list[Any] = []
    monkeypatch.setattr("pytorchrl.run.train_config", lambda config, **where: trained.append(config))
    for _ in range(2_000):
        words = mutated(rng, rng.choice(BASES).split(" "))
        before = len(trained)
        try:
            code = main(words)
        except SystemExit as helped:  # argparse shows a command's help and leaves
            code = int(helped.code or 0)
            assert code == 0
        out, err = capsys.readouterr()
        if code == 0:
            assert bool(out) != (len(trained) > before)
            outcomes["trained" if len(trained) > before else "shown"] += 1
        else:
            assert code == 2
            assert err.startswith("pytorchrl: ")
            outcomes["refused"] += 1
    assert outcomes.total() == 2_000
    assert min(outcomes.values()) > 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml"]
