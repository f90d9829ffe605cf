"""Nothing in a run folder executes when it is loaded, evaluated or resumed."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.checkpoint import MANIFEST, checkpoints_in
from pytorchrl.errors import RLError
from pytorchrl.policy import DESCRIPTION, WEIGHTS

TINY = {"env.num_envs": 1, "storage.size": 16, "algorithm.num_epochs": 1}


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prl.train("ppo", "CartPole-v1", steps=32, overrides=TINY, run=tmp_path_factory.mktemp("runs") / "run").path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def corpus(marker: Path) -> dict[str, bytes]:
    pickled = pickle.dumps(Bomb(marker))
    torch_file, npz, archive = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(Bomb(marker), torch_file)
    np.savez(npz, a=np.array([Bomb(marker)], dtype=object))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../escaped", b"x")
    header = json.dumps({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}).encode()
    huge = json.dumps({"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 4]}}).encode()
    return {
        "pickle": pickled,
        "torch": torch_file.getvalue(),
        "object npz": npz.getvalue(),
        "zip slip": archive.getvalue(),
        "2^63 header": (2**63 - 1).to_bytes(8, "little"),
        "negative shape": len(header).to_bytes(8, "little") + header + bytes(4),
        "huge shape": len(huge).to_bytes(8, "little") + huge + bytes(4),
        "empty": b"",
        "yaml tag": b"!!python/object/apply:os.system ['true']",
        "nested json": b"[" * 200_000,
    }


CORPUS = list(corpus(Path()))


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("target", [WEIGHTS, DESCRIPTION])
def test_a_policy_that_is_not_one_is_refused(name: str, target: str, run: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    (run / "policy" / target).write_bytes(corpus(marker)[name])
    with pytest.raises(prl.CheckpointError, match="policy"):
        prl.load(run)
    assert not marker.exists()


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("target", ["state.json", "state.safetensors", WEIGHTS, MANIFEST])
def test_a_checkpoint_that_is_not_one_is_refused(name: str, target: str, run: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    data = corpus(marker)[name]
    for path in checkpoints_in(run / "checkpoints"):
        (path / target).write_bytes(data)
        if target != MANIFEST:  # a forger writes fitting hashes, too
            manifest = json.loads((path / MANIFEST).read_text())
            manifest["files"][target] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(prl.CheckpointError):
        prl.resume(run, steps=64)
    assert not marker.exists()


@pytest.mark.parametrize("name", CORPUS)
def test_a_configuration_that_is_not_one_is_refused(name: str, run: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    (run / "config.yaml").write_bytes(corpus(marker)[name])
    with pytest.raises(prl.ConfigError):
        prl.resume(run, steps=64)
    assert not marker.exists()


def test_a_run_folder_cannot_name_a_module_to_import(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('executed').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("CartPole-v1", "evil:CartPole-v1"))
    with pytest.raises(prl.ConfigError, match="import a module"):
        prl.resume(run, steps=64)
    info = json.loads((run / "policy" / DESCRIPTION).read_text())
    (run / "policy" / DESCRIPTION).write_text(json.dumps(info | {"env": "evil:CartPole-v1"}))
    from pytorchrl.run import evaluate

    with pytest.raises(RLError, match="import a module"):
        evaluate(prl.load(run), 1)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"observation_space": {"type": "Box", "shape": [10**12], "dtype": "float32", "low": 0, "high": 1}},
        {"observation_space": {"type": "Box", "shape": [-3], "dtype": "float32", "low": 0, "high": 1}},
        {"observation_space": {"type": "Box", "shape": [4], "dtype": "object", "low": 0, "high": 1}},
        {"action_space": {"type": "Discrete", "n": 10**15, "start": 0}},
        {"actor": {"name": "os.system", "config": {}}},
        {"actor": {"name": "OnPolicyActor", "config": {"nonsense": 1}}},
        {"actor": 3},
    ],
)
def test_a_description_with_wild_values_is_refused(change: dict[str, Any], run: Path) -> None:
    info = json.loads((run / "policy" / DESCRIPTION).read_text())
    (run / "policy" / DESCRIPTION).write_text(json.dumps(info | change))
    with pytest.raises(prl.CheckpointError):
        prl.load(run)
