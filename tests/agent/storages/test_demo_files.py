"""Demonstrations in files: those in circulation load; what is none is refused with its path and cause."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.agent.storages.demo_world import buffer, save

from pytorchrl.agent.storages.demo_files import LARGEST_DEMO, read_demo, write_demo
from pytorchrl.keys import ACT, OBS, REW

IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def envs(observation_space: Any, action_space: Any = None, **kwargs: Any) -> Any:
    action_space = action_space or spaces.Discrete(5)
    return SimpleNamespace(
        num_envs=1, observation_space=observation_space, action_space=action_space, env_kwargs=kwargs
    )


class TestFilesInCirculation:
    def test_gray_frames(self, tmp_path: Path) -> None:
        random = np.random.default_rng(0)
        frames = random.integers(0, 256, (181, 1, 84, 84), np.uint8)
        actions = random.integers(0, 5, (181, 1), np.int8)
        path = save(tmp_path, Observation=frames, Action=actions, Reward=np.zeros((181, 1), np.float16))
        storage = buffer(envs=envs(IMAGE, frame_stack=4), initial_human_demos_dir=str(tmp_path))
        (demo,) = storage.reward_demos
        assert (demo["TotalReward"], demo["DemoLength"]) == (0.0, 181)
        assert storage.reward_threshold == 0.0
        np.testing.assert_array_equal(demo[OBS], frames)
        np.testing.assert_array_equal(demo[ACT], actions)
        assert {demo[key].dtype for key in (OBS, ACT, REW)} == {np.dtype(np.float32)}
        small = buffer(envs=envs(IMAGE, frame_stack=4), demo_dtypes={OBS: "uint8", ACT: np.int8}).load_demo(path)
        assert [small[key].dtype for key in (OBS, ACT, REW)] == [np.uint8, np.int8, np.float32]

    def test_colors_and_skipped_frames(self, tmp_path: Path) -> None:
        rewards = np.zeros(113, np.float16)
        rewards[[20, 60, 112]] = 0.1, 1.0, 1.0
        save(
            tmp_path,
            Observation=np.ones((113, 3, 84, 84), np.uint8),
            Action=np.zeros((113, 1), np.int64),
            Reward=rewards,
            FrameSkip=2,
        )
        space = spaces.Box(0, 255, (3, 84, 84), np.uint8)
        storage = buffer(envs=envs(space, frame_skip=2), initial_agent_demos_dir=str(tmp_path))
        assert storage.reward_demos[0]["TotalReward"] == pytest.approx(2.1, abs=1e-3)
        with pytest.raises(ValueError, match=r"demo\.npz: recorded with FrameSkip 2, and the environment has 0"):
            buffer(envs=envs(space), initial_agent_demos_dir=str(tmp_path))

    def test_small_rewards_are_summed_in_float64(self, tmp_path: Path) -> None:
        length = 3001  # which float16 has no number for
        path = save(
            tmp_path,
            Observation=np.zeros((length, 2)),
            Action=np.zeros((length, 1)),
            Reward=np.ones((length, 1), np.float16),
        )
        assert buffer(demo_dtypes={REW: "float16"}).load_demo(path)["TotalReward"] == 3001.0


def test_what_is_written_is_read(tmp_path: Path) -> None:
    demo = {
        OBS: {"a": np.arange(6, dtype=np.uint8).reshape(3, 2), "b": np.ones((3, 1, 2), np.float32)},
        ACT: np.array([[0.5, -1.5]] * 3),
        REW: np.array([[1.0], [0.0], [2.0]], np.float16),
    }
    write_demo(tmp_path / "demo.npz", demo, 4, 2)
    found = read_demo(tmp_path / "demo.npz")
    assert (found.pop("FrameSkip"), found.pop("FrameStack")) == (4, 2)
    assert found.keys() == demo.keys()
    for name, part in demo[OBS].items():
        np.testing.assert_array_equal(found[OBS][name], part)
        assert found[OBS][name].dtype == part.dtype
    np.testing.assert_array_equal(found[ACT], demo[ACT])
    assert [path.name for path in tmp_path.iterdir()] == ["demo.npz"]


# What is changed in a good file, and the cause that is told.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no observations": ({"Observation": None}, "there is no Observation"),
    "no actions": ({"Action": None}, "there is no Action"),
    "no rewards": ({"Reward": None}, "there is no Reward"),
    "no frame skip": ({"FrameSkip": None}, "there is no FrameSkip"),
    "a fractional frame skip": ({"FrameSkip": 1.5}, "FrameSkip is not one whole number"),
    "two frame skips": ({"FrameSkip": np.array([1, 2])}, "FrameSkip is not one whole number"),
    "another frame stack": ({"FrameStack": 4}, "recorded with FrameStack 4, and the environment has 1"),
    "one observation more": ({"Observation": np.zeros((5, 2))}, "expected 4 observations"),
    "one action less": ({"Action": np.zeros((3, 1))}, r"Action has shape \(3, 1\)"),
    "two rewards a step": ({"Reward": np.zeros((4, 2))}, r"Reward has shape \(4, 2\)"),
    "nothing": ({"Observation": np.zeros((0, 2)), "Action": np.zeros((0, 1)), "Reward": np.zeros((0, 1))}, "one step"),
    "not a number": ({"Observation": np.full((4, 2), np.nan)}, "Observation is not finite everywhere"),
    "an endless reward": ({"Reward": np.full((4, 1), np.inf)}, "Reward is not finite"),
    "complex numbers": ({"Reward": np.ones((4, 1), complex)}, "not real numbers"),
    "text": ({"Action": np.array([["left"]] * 4)}, "not real numbers"),
    "flags for rewards": ({"Reward": np.ones((4, 1), bool)}, "Reward holds bool"),
    "wider observations": ({"Observation": np.zeros((4, 3))}, r"\(3,\), and the environment's are \(2,\)"),
    "more numbers per action": ({"Action": np.zeros((4, 2))}, "actions of 2 numbers"),
    "an action beyond": ({"Action": np.full((4, 1), 5)}, "not among the environment's"),
    "a negative action": ({"Action": np.full((4, 1), -1)}, "not among the environment's"),
    "half an action": ({"Action": np.full((4, 1), 0.5)}, "not among the environment's"),
    "parts and a whole": ({"Observation/a": np.zeros((4, 2))}, "parts of it"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    changed, told = BAD[name]
    save(tmp_path, **changed)
    with pytest.raises(ValueError, match=rf"demo\.npz: .*{told}"):
        buffer(envs=envs(spaces.Box(-9, 9, (2,))), initial_human_demos_dir=str(tmp_path))


@pytest.mark.parametrize("width", [1, 3])
def test_without_environments_the_first_sample_tells(width: int, tmp_path: Path) -> None:
    from tests.agent.storages.demo_world import step

    save(tmp_path)
    storage = buffer(initial_human_demos_dir=str(tmp_path))
    with pytest.raises(ValueError, match="does not fit"):
        storage.insert_transition(step([0.0] * width))


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Box(-1, 1, (2,)), [[0.5, -7.0]] * 4, [[0.5]] * 4),
        (spaces.MultiDiscrete([2, 3]), [[1, 2]] * 4, [[2, 2]] * 4),
        (spaces.MultiBinary(2), [[1, 0]] * 4, [[1, 2]] * 4),
    ],
)
def test_actions_of_other_spaces(space: Any, good: Any, bad: Any, tmp_path: Path) -> None:
    storage = buffer(envs=envs(spaces.Box(-9, 9, (2,)), space))
    np.testing.assert_allclose(storage.load_demo(save(tmp_path, Action=np.array(good)))[ACT], good)
    with pytest.raises(ValueError, match="actions"):
        storage.load_demo(save(tmp_path, Action=np.array(bad)))


def test_actions_that_are_masked(tmp_path: Path) -> None:
    space = spaces.Dict({"o": spaces.Box(-9, 9, (2,)), "action_mask": spaces.MultiBinary(5)})
    storage = buffer(envs=envs(space, spaces.MultiDiscrete([2, 3])))
    mask = np.array([[1, 0, 0, 0, 1]] * 4)
    parts = {"Observation": None, "Observation/o": np.zeros((4, 2)), "Observation/action_mask": mask}
    storage.load_demo(save(tmp_path, Action=np.array([[0, 2]] * 4), **parts))
    with pytest.raises(ValueError, match="rules out"):
        storage.load_demo(save(tmp_path, Action=np.array([[0, 2]] * 3 + [[1, 2]]), **parts))


def test_folders(tmp_path: Path) -> None:
    for name in ("initial_human_demos_dir", "initial_agent_demos_dir", "supplementary_demos_dir"):
        with pytest.raises(ValueError, match=r"nowhere: no such folder"):
            buffer(**{name: str(tmp_path / "nowhere")})
    for letter in "bac":
        save(tmp_path, letter, Reward=np.array([0, 0, 0, ord(letter)]))
    (tmp_path / "notes.txt").write_text("no demo")
    (tmp_path / "z.npz").mkdir()
    storage = buffer(initial_human_demos_dir=str(tmp_path), total_buffer_demo_capacity=3)
    assert [demo["TotalReward"] for demo in storage.reward_demos] == [97, 98, 99]
    with pytest.raises(
        ValueError, match=rf"{tmp_path.name}: 3 demos to begin with, and total_buffer_demo_capacity is 2"
    ):
        buffer(initial_human_demos_dir=str(tmp_path), total_buffer_demo_capacity=2)


# Hostile files


class Bomb:
    """Executed by whoever unpickles it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def archive(members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=True)
    return file.getvalue()


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode()


def corpus(marker: Path) -> dict[str, bytes]:
    good = {"Action.npy": npy(np.zeros((4, 1))), "Reward.npy": npy(np.zeros((4, 1))), "FrameSkip.npy": npy(np.array(0))}

    def with_observation(data: bytes) -> bytes:
        return archive({"Observation.npy": data, **good})

    shape = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}"
    huge = archive({"Observation.npy": header(shape % "(4, 100000000)") + bytes(1_600_000_000 // 100), **good})
    doubled = io.BytesIO(with_observation(npy(np.zeros((4, 2)))))
    with zipfile.ZipFile(doubled, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("Observation.npy", npy(np.zeros((4, 2))))
    broken = archive({"Observation.npy": npy(np.arange(8.0).reshape(4, 2)), **good}, zipfile.ZIP_STORED)
    broken = broken.replace(np.float64(7).tobytes(), np.float64(8).tobytes())
    return {
        "objects": with_observation(npy(np.array([[Bomb(marker)]] * 4, dtype=object))),
        "pickle": pickle.dumps(Bomb(marker)),
        "pickle in the archive": with_observation(pickle.dumps(Bomb(marker))),
        "empty": b"",
        "text": b"no demo",
        "cut off": with_observation(npy(np.zeros((4, 2))))[:-40],
        "a bit that tipped": broken,
        "more than there is": huge,
        "less than there is": with_observation(npy(np.zeros((4, 2))) + b"more"),
        "negative shape": with_observation(header(shape % "(-4, -2)") + bytes(32)),
        "words for a shape": with_observation(header(shape % "('a', 2)") + bytes(32)),
        "a shape that is none": with_observation(header(shape % "4") + bytes(32)),
        "a type that is none": with_observation(header("{'descr': (), 'fortran_order': False, 'shape': (4, 2)}")),
        "no dictionary": with_observation(header("[1]") + bytes(32)),
        "code for a header": with_observation(header(f"__import__('os').mkdir({str(marker)!r})") + bytes(32)),
        "unclosed header": with_observation(header("{'descr': (((") + bytes(32)),
        "deep header": with_observation(header("(" * 5000) + bytes(32)),
        "unknown version": with_observation(header(shape % "(4, 2)", b"\x09\x00") + bytes(32)),
        "a key twice": doubled.getvalue(),
        "outside": archive({"../../Observation.npy": npy(np.zeros((4, 2))), **good}),
    }


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", list(corpus(Path())))
def test_a_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    (tmp_path / "demo.npz").write_bytes(corpus(marker)[name])
    with pytest.raises(ValueError, match=r"demo\.npz: "):
        buffer(envs=envs(spaces.Box(-9, 9, (2,))), initial_human_demos_dir=str(tmp_path))
    assert not marker.exists()


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    """1.1 GiB of zeros that agree with every header: nothing of them is unpacked."""
    rows, path = 4 * 290, tmp_path / "demo.npz"
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 250000)}}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        with file.open("Observation.npy", "w", force_zip64=True) as member:
            member.write(header(text))
            for _ in range(rows):
                member.write(bytes(1_000_000))
        file.writestr("Action.npy", npy(np.zeros((rows, 1))))
    assert path.stat().st_size < LARGEST_DEMO / 100
    with pytest.raises(ValueError, match=r"demo\.npz: .*unpacks to 1\.08 GiB"):
        read_demo(path)
