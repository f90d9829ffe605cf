"""The import paths and the schemas that the documentation states."""

import subprocess
import sys
from pathlib import Path

import pytest
import src.buffers
import src.buffers.PPOBuffer
import src.buffers.SimpleReplayBuffer

import pytorchrl.buffers
from pytorchrl.component import Component
from pytorchrl.functional import discount_cumsum

CLASSES = [src.buffers.PPOBuffer.PPOBuffer, src.buffers.SimpleReplayBuffer.SimpleReplayBuffer]


def test_modules_and_what_is_in_them() -> None:
    assert src.buffers.__doc__ == "Replay buffer definitions, for storing past data for learning."
    assert src.buffers.PPOBuffer.__doc__ == "Buffer for PPO."
    assert src.buffers.SimpleReplayBuffer.__doc__ == "Default Replay Buffer."
    assert src.buffers.PPOBuffer.discount_cumsum is pytorchrl.buffers.discount_cumsum is discount_cumsum
    assert [getattr(pytorchrl.buffers, cls.__name__) for cls in CLASSES] == CLASSES


@pytest.mark.parametrize("cls", CLASSES)
def test_at_most_one_class_stands_between(cls: type) -> None:
    assert cls.__mro__ == (cls, Component, object)


def test_schemas() -> None:
    required = "'obs_dim': Int(), 'act_dim': Int(), 'size': Int(), 'batch_size': Int()"
    optional = 'Optional("gamma"): Float(), Optional("lam"): Float(), Optional("eps"): Float()'
    assert repr(CLASSES[0].schema) == f"Map({{{required}, {optional}}})"
    assert repr(CLASSES[1].schema) == f"Map({{{required}}})"


def test_importing_prints_nothing() -> None:
    code = "import src.buffers.PPOBuffer, src.buffers.SimpleReplayBuffer"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
