"""Video files: mp4 through imageio-ffmpeg, GIF through Pillow, whichever is installed."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.errors import ConfigError

Frame = NDArray[np.uint8]
PACKAGES = {".mp4": "imageio_ffmpeg", ".gif": "PIL"}
INSTALL = "Install it: pip install 'pytorchrl[video]'"
# GIFs are large: fewer frames a second, fewer pixels, and an end.
GIF_FPS, GIF_WIDTH, GIF_FRAMES = 20, 320, 1000


def writable(path: Path) -> Path:
    """The path itself, or the same name as GIF where mp4 cannot be written; ``ConfigError`` if neither can."""
    if path.suffix not in PACKAGES:
        raise ConfigError(f"{path}: a video is an .mp4 or a .gif file")
    for candidate in dict.fromkeys((path, path.with_suffix(".gif"))):
        if importlib.util.find_spec(PACKAGES[candidate.suffix]) is not None:
            return candidate
    raise ConfigError(f"{path}: no package that writes videos is installed", INSTALL)


class VideoWriter:
    """Frames ``[H, W, 3]`` uint8 of one size, one after the other; the file is there when the context ends well."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = writable(path)
        self.fps = max(float(fps), 1.0)
        self.frames = 0
        self._hidden = path.with_name(f".{self.path.stem}.tmp{self.path.suffix}")
        self._movie: Generator[None, Any, None] | None = None
        self._images: list[Any] = []

    def __enter__(self) -> VideoWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def add(self, frame: Frame) -> None:
        if self.path.suffix == ".gif":
            self._add_image(frame)
        else:
            self._add_to_movie(frame)
        self.frames += 1

    def _add_to_movie(self, frame: Frame) -> None:
        height, width = (side // 2 * 2 for side in frame.shape[:2])  # what players expect has even sides
        if self._movie is None:
            import imageio_ffmpeg  # type: ignore[import-untyped]

            size = {"size": (width, height), "fps": self.fps, "macro_block_size": 2, "ffmpeg_log_level": "error"}
            self._movie = imageio_ffmpeg.write_frames(str(self._hidden), **size)
            self._movie.send(None)
        self._movie.send(np.ascontiguousarray(frame[:height, :width]))

    def _add_image(self, frame: Frame) -> None:
        from PIL import Image

        every = max(round(self.fps / GIF_FPS), 1)
        if self.frames % every == 0 and len(self._images) < GIF_FRAMES:
            image = Image.fromarray(frame)
            image.thumbnail((GIF_WIDTH, GIF_WIDTH))
            self._images.append(image.convert("P"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._movie is not None:
                self._movie.close()
            if error is None and self._images:
                milliseconds = 1000 * max(round(self.fps / GIF_FPS), 1) / self.fps
                first, *rest = self._images
                first.save(self._hidden, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
            if error is None and self.frames:
                self._hidden.replace(self.path)
        finally:
            with contextlib.suppress(OSError):
                self._hidden.unlink(missing_ok=True)
