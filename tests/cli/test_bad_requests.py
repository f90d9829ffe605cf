"""Bad requests: exit code 2, one clear sentence per problem on stderr, no traceback, nothing written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytorchrl.cli import main

GOOD = """algorithm: {name: PPO, config: {lr: 1e-3}}
storage: {name: GAEBuffer, config: {size: 32}}
env: {id: CartPole-v1, num_envs: 2}
run: {steps: 256}
"""

# A folder whose only demo is none.
DEMOS = Path(__file__).parent / "bad_demos"
PPOD = "train ppod CartPole-v1"
TRAIN = ["train", "ppo", "CartPole-v1"]


def by_file(text: str | bytes, *told: str) -> tuple[list[str], str | bytes, tuple[str, ...]]:
    """A request that is wrong in its configuration file: the file's name belongs into the message."""
    return ["train", "--config", "bad.yaml"], text, told


def by_words(words: str, *told: str) -> tuple[list[str], None, tuple[str, ...]]:
    """A request that is wrong in the words of the command line."""
    return words.split(" "), None, told


def by_flags(words: str, *told: str) -> tuple[list[str], None, tuple[str, ...]]:
    return [*TRAIN, *words.split(" ")], None, told


FILES = {
    "unknown section": by_file(GOOD + "enviroment: {}\n", "bad.yaml line 5: unknown section", "Did you mean 'env'?"),
    "misspelt key": by_file(GOOD.replace("lr:", "lrr:"), "bad.yaml line 1, algorithm.config.lrr", "Did you mean 'lr'?"),
    "key outside config": by_file(
        GOOD.replace("config: {size: 32}", "size: 32"), "line 2, storage.size", "belongs under storage.config"
    ),
    "missing key": by_file(GOOD.replace("{size: 32}", "{}"), "bad.yaml: GAEBuffer needs storage.size", "--set"),
    "missing section": by_file(GOOD.replace("env:", "#"), "bad.yaml: no environment is named"),
    "missing algorithm": by_file(GOOD.replace("algorithm:", "#"), "bad.yaml: no algorithm is named"),
    "wrong type": by_file(GOOD.replace("256", "many"), "line 4, run.steps: expected a whole number, got 'many'"),
    "list for a number": by_file(GOOD.replace("32", "[32]"), "line 2, storage.config.size", "got a list"),
    "value out of range": by_file(
        GOOD.replace("lr: 1e-3", "gamma: 1.5"), "line 1, algorithm.config.gamma: expected a number between 0 and 1"
    ),
    "size zero": by_file(GOOD.replace("32", "0"), "storage.config.size: expected a number of at least 1, got '0'"),
    "size negative": by_file(GOOD.replace("32", "-32"), "storage.config.size: expected a number of at least 1"),
    "size huge": by_file(GOOD.replace("32", "9" * 30), "storage.config.size: expected a number of at most"),
    "NaN": by_file(GOOD.replace("1e-3", ".nan"), "line 1, algorithm.config.lr: expected a number"),
    "nan": by_file(GOOD.replace("1e-3", "nan"), "line 1, algorithm.config.lr: expected a finite number"),
    "infinity": by_file(GOOD.replace("1e-3", "1e999"), "line 1, algorithm.config.lr: expected a finite number"),
    "unknown algorithm": by_file(GOOD.replace("PPO", "PPPO"), "line 1, algorithm.name", "Did you mean 'PPO'?"),
    "class path": by_file(GOOD.replace("PPO", "os.system"), "line 1, algorithm.name: unknown algorithm 'os.system'"),
    "unknown storage": by_file(GOOD.replace("GAEBuffer", "GAEBufer"), "line 2, storage.name", "'GAEBuffer'?"),
    "unknown actor": by_file(GOOD + "actor: {name: OnPolicy}\n", "line 5, actor.name", "'OnPolicyActor'?"),
    "unknown scheme": by_file(GOOD + "scheme: {name: singel}\n", "line 5, scheme.name", "Did you mean 'single'?"),
    "unknown environment": by_file(GOOD.replace("CartPole-v1", "CartPol-v1"), "line 3, env.id", "'CartPole-v1'?"),
    "module:Env in a file": by_file(GOOD.replace("CartPole-v1", "this:CartPole-v1"), "line 3, env.id", "module"),
    "algorithm that is a list": by_file(GOOD.replace("PPO", "[PPO]"), "algorithm.name: expected a name, got a list"),
    "section that is a value": by_file(GOOD + "actor: 3\n", "line 5, actor: expected a mapping, got '3'"),
    "not a mapping": by_file("- algorithm\n- env\n", "bad.yaml line 1: expected a mapping", "got a list"),
    "only a word": by_file("PPO", "bad.yaml line 1: expected a mapping"),
    "empty file": by_file("", "bad.yaml: the file is empty"),
    "broken YAML": by_file(GOOD + "actor: {name\n", "bad.yaml line 6: broken YAML"),
    "duplicate key": by_file(GOOD + "run: {steps: 3}\n", "bad.yaml line 5: the key 'run' twice"),
    "tag": by_file(GOOD.replace("256", "!!int 256"), "bad.yaml line 4: the tag"),
    "python tag": by_file(GOOD + "actor: !!python/object/apply:os.getcwd []\n", "bad.yaml line 5: the tag"),
    "anchor": by_file(GOOD.replace("256", "&steps 256"), "bad.yaml line 4: an anchor or alias"),
    "tab": by_file(GOOD + "\tactor: {}\n", "bad.yaml line 5"),
    "not UTF-8": by_file(GOOD.encode() + b"actor: \xff\n", "bad.yaml: not UTF-8 text"),
    "control character": by_file(GOOD + "actor: \x07\n", "bad.yaml line 5: unprintable character"),
    "too large a file": by_file("# " + "x" * (1 << 20), "bad.yaml: too large"),
    "annealing what is none": by_file(GOOD + "anneal: {num_epochs: 1}\n", "line 5, anneal.num_epochs", "no parameter"),
    "annealing out of range": by_file(GOOD + "anneal: {gamma: 2}\n", "line 5, anneal.gamma", "between 0 and 1"),
    "logger": by_file(GOOD.replace("{steps", "{logger: [cvs], steps"), "line 4, run.logger: expected one of", "'cvs'"),
    "what no file can hold": by_file(GOOD.replace("num_envs: 2", "kwargs: {a: 'x\n\n y'}"), "cannot be written"),
}

WORDS = {
    "unknown command": by_words("trian ppo CartPole-v1", "unknown command 'trian'", "Did you mean 'train'?"),
    "command to come": by_words("bench replay", "unknown command 'bench'", "Known: "),
    "enjoy nothing": by_words("enjoy nope --video x.gif", "nope: no such run folder"),
    "enjoy no episodes": by_words("enjoy {finished} --video x.gif --episodes 0", "--episodes: expected a number"),
    "video of another kind": by_words("enjoy {finished} --video x.avi", "x.avi: a video is an .mp4 or a .gif file"),
    "video to nowhere": by_words("enjoy {finished} --video {finished}/config.yaml/x.gif", "cannot be written"),
    "video of nothing": by_words("enjoy {finished} --video x.gif --env Unbounded-v0", "render"),
    "unknown flag": by_flags("--stesp 3", "unknown argument '--stesp'", "Did you mean '--steps'?"),
    "unknown flag of the program": by_words("--verison", "unknown argument '--verison'", "'--version'?"),
    "flag without value": by_flags("--steps", "--steps", "expected one argument"),
    "abbreviated flag": by_flags("--step 3", "unknown argument '--step'", "'--steps'?"),
    "one word too many": by_flags("Pendulum-v1", "unknown argument 'Pendulum-v1'"),
    "no environment": by_words("train ppo", "no environment is named", "For example"),
    "nothing at all": by_words("train", "no algorithm and no environment is named"),
    "unknown algorithm by word": by_words("train pppo CartPole-v1", "unknown algorithm 'pppo'", "'PPO'?"),
    "unknown environment by word": by_words("train ppo CartPol-v1", "unknown environment", "'CartPole-v1'?"),
    "unknown version": by_words("train ppo CartPole-v7", "'CartPole-v7'", "'CartPole-v1'?"),
    "module that is not there": by_words("train ppo nowhere:Env-v0", "nowhere:Env-v0 cannot be made", "nowhere"),
    "unknown preset": by_flags("--preset CartPole", "PPO has no preset 'CartPole'", "'CartPole-v1'?"),
    "missing file": by_words("train --config nope.yaml", "nope.yaml: no such file"),
    "folder as file": by_words("train --config .", ".: cannot be read as a file"),
    "seed -1": by_flags("--seed -1", "--seed: expected a number", "got '-1'"),
    "seed 2^63": by_flags(f"--seed {2**63}", "--seed: expected a number", f"got '{2**63}'"),
    "seed 1.5": by_flags("--seed 1.5", "--seed: expected a whole number, got '1.5'"),
    "seed true": by_flags("--seed true", "--seed: expected a whole number, got 'true'"),
    "two flags": by_flags("--steps 0 --device gpu", "--steps: expected", "--device: expected one of auto, cpu, cuda"),
    "a billion environments": by_flags("--envs 1000000000", "--envs: expected a number between 1 and"),
    "logger misspelt": by_flags("--logger csv,wandbb", "--logger: expected one of csv, tensorboard, wandb", "'wandbb'"),
    "set without value": by_flags("--set gamma", "--set gamma: expected PATH=VALUE"),
    "set misspelt": by_flags("--set algorithm.gama=1", "algorithm.gama", "Did you mean 'gamma'?"),
    "set bare and misspelt": by_flags("--set gama=1", "unknown name 'gama'", "Did you mean 'gamma'?"),
    "set out of range": by_flags("--set gamma=2", "algorithm.gamma: expected a number between 0 and 1, got '2'"),
    "set a section": by_flags("--set algorithm=PPO", "algorithm: expected a mapping, got 'PPO'"),
    "set below a value": by_flags("--set a=1 --set a.b=2", "--set a.b: 'a' is a value, not a section"),
    "set a tag": by_flags("--set gamma=!!float\t1", "--set gamma line 1"),
    "alias that does not fit": by_flags("--set tau=0.005", "'tau' is algorithm.polyak here, and PPO has none"),
    "alias out of range": by_flags("--set ent_coef=-1", "ent_coef: expected a number of at least 0, got '-1'"),
    "extractor": by_flags("--set actor.feature_extractor_network=MPL", "unknown feature extractor 'MPL'", "'MLP'?"),
    "env kwargs": by_flags("--set env.kwargs.color=red", "CartPole-v1 cannot be made", "'color'"),
    "infinite action bounds": by_words("train ppo Unbounded-v0", "infinite bounds"),
    "empty action box": by_words("train ppo Flat-v0", "action space"),
    "action space that does not fit": by_words("train ppo Words-v0", "action space Text"),
    "observations that do not fit": by_words("train ppo Wordy-v0", "observation space Text"),
    "existing run folder": by_flags("--run {finished}", "there is a run in this folder already"),
    "run folder below a file": by_flags("--run {finished}/status.json/x", "cannot be made a run folder"),
    "run folder that is a file": by_flags("--run {finished}/status.json", "cannot be made a run folder (File exists)"),
    "run folder without name": ([*TRAIN, "--run", ""], None, ("the run's folder has no name",)),
    "NUL in a file": (["train", "--config", "a\0b"], None, ("cannot be read as a file", "null byte")),
    "NUL in a path": ([*TRAIN, "--run", "a\0b"], None, ("cannot be made a run folder", "null byte")),
    "evaluate nothing": by_words("evaluate nope", "nope: no such run folder"),
    "evaluate no run": by_words("evaluate .", "this is not a run folder"),
    "evaluate no episodes": by_words("evaluate {finished} --episodes 0", "--episodes: expected a number", "'0'"),
    "evaluate bad seed": by_words("evaluate {finished} --seed x", "--seed: expected a whole number, got 'x'"),
    "evaluate bad checkpoint": by_words("evaluate {finished} --checkpoint 7", "no checkpoint '7'", "256, 128"),
    "resume nothing": by_words("resume nope", "nope: this is not a run folder"),
    "resume what is done": by_words("resume {finished}", "this run is done, with 256 steps", "--steps N"),
    "report nothing": by_words("report nope", "nope: this is not a run folder"),
    "report nothing beside a run": by_words("report {finished} nope", "nope: this is not a run folder"),
    "report without a run": by_words("report", "the following arguments are required: RUN"),
    "report to nowhere": by_words("report {finished} --out {finished}/config.yaml/x", "cannot be written", "--out"),
    "report to no port": by_words("report {finished} --live --port 70000", "--port: expected a number between 0 and"),
    "record without a run": by_words("record CartPole-v1 --out x", "record needs --run RUN", "takes a function"),
    "record to nowhere": by_words("record CartPole-v1 --run {finished}", "--out"),
    "record nothing": by_words("record CartPole-v1 --out x --run {finished} --episodes 0", "--episodes: expected"),
    "record no run": by_words("record CartPole-v1 --out x --run nope", "nope: no such run folder"),
    "record nowhere": by_words("record CartPol-v1 --out x --run {finished}", "Did you mean 'CartPole-v1'?"),
    "record elsewhere": by_words("record Acrobot-v1 --out x --run {finished}", "was trained for CartPole-v1"),
    "record bad checkpoint": by_words(
        "record CartPole-v1 --out x --run {finished} --checkpoint 7", "no checkpoint '7'"
    ),
    "record into a file": by_words("record CartPole-v1 --out {finished}/status.json --run {finished}", "status.json"),
    "no folder of demos": by_words(
        f"{PPOD} --set storage.initial_human_demos_dir=nope", "nope: no such folder of demos"
    ),
    "a demo that is none": by_words(f"{PPOD} --set storage.initial_agent_demos_dir={DEMOS}", "none.npz: ", "no demon"),
    "more than all episodes": by_words(f"{PPOD} --set rho=0.8", "rho 0.8 and phi 0.3", "at most 1"),
    "nothing but demos": by_words(f"{PPOD} --set rho=0.7", "no episode would be real"),
    "a share beyond 1": by_words(f"{PPOD} --set rho=1.5", "rho: expected a number between 0 and 1"),
    "no type of numbers": by_words(f"{PPOD} --set storage.demo_dtypes.Reward=word", "demo_dtypes.Reward", "got 'word'"),
    "demos of scaled rewards": by_words(f"{PPOD} --set env.normalize_rewards=true", "cannot be normalized"),
    "demos on a vector": by_words(f"{PPOD} --backend vector", "none can wait", "Use backend sync or async"),
    "misspelt demos": by_words(f"{PPOD} --set initial_human_demo_dir=x", "Did you mean 'initial_human_demos_dir'?"),
    "export nothing": by_words("export nope", "nope: no such run folder"),
    "export in no format": by_words("export {finished} --format onx", "unknown format 'onx'", "Did you mean 'onnx'?"),
    "export to nowhere": by_words("export {finished} --out {finished}/config.yaml/x", "cannot be written", "--out"),
    "completion of what": by_words("completion bsh", "no completion for 'bsh'", "Did you mean 'bash'?"),
    "tune nothing": by_words("tune", "no algorithm and no environment is named"),
    "tune no trials": by_words("tune ppo CartPole-v1 --trials 0", "--trials: expected a number"),
    "tune what is not there": by_words(
        "tune ppo CartPole-v1 --search algorithm.lrr", "nothing to search", "'algorithm.lr'?"
    ),
    "tune into a file": by_words("tune ppo CartPole-v1 --out {finished}/config.yaml", "cannot be written", "--out"),
    "list what": by_words("list algorithm", "nothing to list under 'algorithm'", "Did you mean 'algorithms'?"),
}

ALL = FILES | WORDS


def everything_in(folder: Path) -> dict[str, float]:
    """Every path below the folder, and when it was changed."""
    return {str(path): path.stat().st_mtime for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ALL)
def test_a_bad_request_is_refused(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, text, told = ALL[name]
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("bad.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    before = everything_in(tmp_path), everything_in(finished)
    code = main([word.replace("{finished}", str(finished)) for word in words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert (everything_in(tmp_path), everything_in(finished)) == before
    assert err.startswith("pytorchrl: ")
    assert all(part in err for part in told), err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 3
    assert len(err) < 600


def test_all_that_is_wrong_in_a_file_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(
        "algorithm:\n  name: PPO\n  config:\n    lrr: 1\n    gamma: 7\nstorage: {name: GAE}\nenv: {id: CartPol-v1}\n"
        "run:\n  steps: few\n  seed: -1\nrnu: {}\n"
    )
    assert main(["train", "--config", "bad.yaml"]) == 2
    told = capsys.readouterr().err.removeprefix("pytorchrl: ").splitlines()
    assert sorted(line.partition(":")[0] for line in told) == [
        "bad.yaml line 10, run.seed",
        "bad.yaml line 11",
        "bad.yaml line 4, algorithm.config.lrr",
        "bad.yaml line 5, algorithm.config.gamma",
        "bad.yaml line 6, storage.name",
        "bad.yaml line 7, env.id",
        "bad.yaml line 9, run.steps",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "storage.size=1000000000"],
        ["--set", f"storage.size={2**53}"],
        ["--set", "storage.size=1000000000", "--envs", "1"],
        ["--set", "storage.size=100000000", "--envs", "4096"],
    ],
)
def test_a_storage_beyond_memory_is_refused_at_once_and_before_it_is_allocated(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pytorchrl.memory.available_bytes", lambda: 8 << 30)
    main([*TRAIN, "--set", "gamma=2"])  # what is imported once is not counted
    grown, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert main([*TRAIN, *words]) == 2
    assert time.process_time() - started < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 200 << 10
    err = capsys.readouterr().err
    assert "of memory, and this machine has 8 GiB" in err
    assert "Choose a smaller size" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert main([*TRAIN, "--run", str(tmp_path / "x")]) == 2
    assert "cannot be made a run folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train pppo CartPole-v1", "Did you mean 'PPO'?"),
        ("train ppo CartPole-v1 --seed -1", "--seed: expected a number"),
        ("train --config nope.yaml", "nope.yaml: no such file"),
    ],
)
def test_the_installed_program_says_the_same(words: str, told: str, tmp_path: Path) -> None:
    program = [str(Path(sys.executable).with_name("pytorchrl")), *words.split()]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
