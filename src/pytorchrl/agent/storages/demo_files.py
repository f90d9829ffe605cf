"""Demonstrations as files: one ``.npz`` each, read without pickle and without trust in what it says about itself.

| key | shape | meaning |
|---|---|---|
| Observation | ``[L, *shape]`` | what action t was chosen on: single frames, as VecEnv gives them |
| Observation/NAME | likewise | instead of it, each part of a Dict |
| Action | ``[L, 1]`` or ``[L, A]`` | whole numbers from 0, or floats in environment units |
| Reward | ``[L, 1]`` or ``[L]`` | |
| FrameSkip | whole number | of the environment; 0 for none |
| FrameStack | whole number, optional | likewise; 1 for none |
"""

from __future__ import annotations

import io
import logging
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pytorchrl import tree
from pytorchrl.agent.env.masks import choices_of, has_mask
from pytorchrl.atomic import write_bytes
from pytorchrl.errors import ConfigError, suggestion
from pytorchrl.keys import ACT, ACTION_MASK, OBS, REW
from pytorchrl.memory import in_units

Array = npt.NDArray[Any]

LOG = logging.getLogger("pytorchrl")

FRAME_SKIP, FRAME_STACK = "FrameSkip", "FrameStack"
# Arrays of one file, unpacked; a damaged or hostile file must not ask for all the memory there is.
LARGEST_DEMO = 2**30

# Whatever a broken archive or a broken array header can make the readers of zip and npy files raise.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    SyntaxError,
    MemoryError,
    RuntimeError,  # encrypted, or packed in a way that is not supported; too deeply nested
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
)


def read_demo(path: str | Path) -> dict[str, Any]:
    """What a file holds under the keys above, Action and Reward as ``[L, …]``; ``ConfigError`` with path and cause."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = _read(archive)
    except _DAMAGE as error:
        raise ConfigError(f"{path}: this is no demonstration: {error or type(error).__name__}") from error
    problem = _problem(found)
    if problem:
        raise ConfigError(f"{path}: {problem}")
    return found


def write_demo(path: Path, demo: Mapping[str, Any], frame_skip: int, frame_stack: int) -> None:
    """Write a demo's documented keys; an existing file is replaced, whole or not at all."""
    obs = demo[OBS]
    arrays = {f"{OBS}/{name}": part for name, part in obs.items()} if isinstance(obs, dict) else {OBS: obs}
    arrays |= {ACT: demo[ACT], REW: demo[REW], FRAME_SKIP: np.int64(frame_skip), FRAME_STACK: np.int64(frame_stack)}
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    write_bytes(path, file.getvalue())


def _read(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The arrays that belong to the format; all headers are looked at before any array is made."""
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    wanted = [name for name in names if name in (OBS, ACT, REW, FRAME_SKIP, FRAME_STACK) or name.startswith(f"{OBS}/")]
    if len(set(wanted)) < len(wanted):
        raise ValueError("a key stands in it twice")
    size = sum(_checked_size(archive, name) for name in wanted)
    if size > LARGEST_DEMO:
        raise ValueError(f"it unpacks to {in_units(size)}, more than {in_units(LARGEST_DEMO)}")
    arrays = {}
    for name in wanted:
        with archive.open(f"{name}.npy") as member:
            arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    parts = {name.partition("/")[2]: arrays.pop(name) for name in wanted if name.startswith(f"{OBS}/")}
    if parts and OBS in arrays:
        raise ValueError(f"it has {OBS} and parts of it")
    return arrays | ({OBS: parts} if parts else {})


def _checked_size(archive: zipfile.ZipFile, name: str) -> int:
    """Bytes of an array by its header, which has to agree with the archive."""
    with archive.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        else:
            raise ValueError(f"{name} is written in version {version} of the npy format")
        if dtype.kind not in "buif":
            raise ValueError(f"{name} holds {dtype}, not real numbers")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or archive.getinfo(f"{name}.npy").file_size != member.tell() + size:
            raise ValueError(f"{name} is not as long as its header says")
    return size


def _problem(found: dict[str, Any]) -> str:
    """What is wrong with the arrays, empty if nothing is; Action and Reward become ``[L, …]``."""
    missing = [key for key in (OBS, ACT, REW, FRAME_SKIP) if key not in found]
    if missing:
        return f"there is no {missing[0]}"
    for key in (FRAME_SKIP, FRAME_STACK):
        if key in found:
            if found[key].size != 1 or found[key].dtype.kind not in "ui":
                return f"{key} is not one whole number"
            found[key] = int(found[key].reshape(()))
    for key in (ACT, REW):
        found[key] = found[key][:, None] if found[key].ndim == 1 else found[key]
    if found[REW].dtype.kind == "b":
        return f"{REW} holds {found[REW].dtype}"
    length = len(found[REW]) if found[REW].ndim == 2 else 0
    if found[REW].shape != (length, 1) or length == 0:
        return f"{REW} has shape {found[REW].shape}, expected (steps, 1) with at least one step"
    if found[ACT].ndim != 2 or len(found[ACT]) != length:
        return f"{ACT} has shape {found[ACT].shape}, expected ({length}, numbers per action)"
    for part in tree.leaves(found[OBS]):
        if part.ndim < 2 or len(part) != length:
            return f"{OBS} has shape {part.shape}, expected {length} observations"
    for key in (OBS, ACT, REW):
        if not all(np.isfinite(part).all() for part in tree.leaves(found[key])):
            return f"{key} is not finite everywhere"
    return ""


def shapes(obs: Any, cut: Any = lambda shape: shape[1:]) -> Any:
    """The shape of one of the observations ``[L, *shape]``, by part."""
    return tree.tree_map(lambda part: tuple(cut(part.shape)), obs)  # type: ignore[arg-type,return-value]


def check_alike(demo: Mapping[str, Any], obs: Any, action: Any) -> None:
    """``ConfigError`` if a demo is not of single observations and actions such as ``[N, …]``."""
    found, expected = ((shapes(o), tuple(a.shape[1:])) for o, a in ((demo[OBS], demo[ACT]), (obs, action)))
    if found != expected:
        raise ConfigError(
            f"a demo of observations {found[0]} and actions {found[1]} does not fit an environment of"
            f" observations {expected[0]} and actions {expected[1]}"
        )


def require_folder(folder: str | None) -> None:
    """``ConfigError`` if a folder is named and is not there."""
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"{folder}: no such folder of demos")


def files_in(folder: str | None) -> list[Path]:
    """The demo files of a folder, by name."""
    require_folder(folder)
    if folder is None:
        return []
    files = sorted(path for path in Path(folder).glob("*.npz") if path.is_file())
    if not files:
        LOG.warning("%s: no demos (*.npz) here", folder)
    return files


def check_recording(demo: Mapping[str, Any], frame_skip: int, frame_stack: int) -> None:
    """``ConfigError`` if a demo was recorded with other frames than an environment has."""
    for key, expected in {FRAME_SKIP: frame_skip, FRAME_STACK: frame_stack}.items():
        if demo.get(key, expected) != expected:
            raise ConfigError(f"recorded with {key} {demo[key]}, and the environment has {expected}")


def check_fits(demo: Mapping[str, Any], observation_space: Any, action_space: Any, frame_stack: int) -> None:
    """``ConfigError`` if a demo's observations or actions are not those of an environment."""
    boxes: Any = observation_space
    if isinstance(observation_space, spaces.Dict):
        boxes = dict(observation_space.spaces)
    expected = shapes(boxes, lambda shape: (shape[0] // frame_stack, *shape[1:]))
    if shapes(demo[OBS]) != expected:
        raise ConfigError(f"single observations of shape {shapes(demo[OBS])}, and the environment's are {expected}")
    actions = demo[ACT]
    choices: Any = None
    if isinstance(action_space, spaces.Box):
        width = int(np.prod(action_space.shape))
    elif isinstance(action_space, spaces.MultiDiscrete):
        width, choices = action_space.nvec.size, action_space.nvec.reshape(-1)
    else:
        binary = isinstance(action_space, spaces.MultiBinary)
        width, choices = (int(np.prod(action_space.shape)), 2) if binary else (1, int(action_space.n))
    if actions.shape[1] != width:
        raise ConfigError(f"actions of {actions.shape[1]} numbers, and the environment's have {width}")
    if choices is not None and ((actions < 0) | (actions >= choices) | (actions != np.floor(actions))).any():
        raise ConfigError(f"actions that are not among the environment's, {action_space}")
    if has_mask(observation_space):
        sizes = choices_of(action_space)
        columns = actions.astype(np.int64) + np.cumsum([0, *sizes[:-1]])
        if not np.take_along_axis(demo[OBS][ACTION_MASK], columns, 1).all():
            raise ConfigError("actions that the mask of their observation rules out")


def number_types(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A number type for each field, float32 where none is chosen."""
    dtypes: dict[str, Any] = dict.fromkeys((OBS, ACT, REW), np.float32)
    for key, value in chosen.items():
        if key not in dtypes:
            raise ConfigError(f"demo_dtypes: demos have no '{key}'", suggestion(key, dtypes))
        try:
            dtype = np.dtype(value)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "uif" or dtype.itemsize > 8:
            raise ConfigError(f"demo_dtypes.{key}: expected a type of numbers such as float32 or uint8, got {value!r}")
        dtypes[key] = dtype.type
    return dtypes
