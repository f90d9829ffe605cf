"""pytorchrl report"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from pytorchrl.atomic import write_bytes
from pytorchrl.cli.main import whole_number
from pytorchrl.console import say
from pytorchrl.errors import ConfigError
from pytorchrl.report.comparison import Comparison, comparison_page, draw
from pytorchrl.report.data import RunData
from pytorchrl.report.page import figures, page
from pytorchrl.report.picture import write_pictures
from pytorchrl.run_folder import RunFolder

LARGEST_PORT = 65_535


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    folders = [RunFolder(Path(path)) for path in dict.fromkeys(options.runs)]
    for folder in folders:
        if not folder.status.is_file():
            raise ConfigError(f"{folder.path}: this is not a run folder", "`ls runs` shows the runs of this folder.")
    port = whole_number(options.port, "--port", 0, LARGEST_PORT)
    if options.live:
        return follow(folders, port)
    usual = folders[0].report if len(folders) == 1 else Path("comparison.html")
    out = Path(options.out) if options.out is not None else usual
    text, drawings = pages(folders)
    pictures = out.with_name(f"{out.stem}_figures")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out, text.encode(errors="replace"))
        write_pictures(pictures, drawings)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{out}: cannot be written ({cause})", "Give --out another file.") from error
    say(str(out))
    return 0


def pages(folders: Sequence[RunFolder]) -> tuple[str, dict[str, str]]:
    """The page of one run or of several, and its figures by name."""
    runs = [RunData.read(folder) for folder in folders]
    if len(runs) == 1:
        return page(runs[0]), figures(runs[0])
    comparison = Comparison(runs)
    if not comparison.runs:
        raise ConfigError("none of these runs has a finished episode or an evaluation yet", "Let them train longer.")
    drawings = {name: draw(**parts, heading=True) for name, parts in comparison.figures().items()}
    return comparison_page(comparison), drawings


def follow(folders: Sequence[RunFolder], port: int) -> int:
    """Serve the page until the user ends it."""
    from pytorchrl.report.serve import ADDRESS, server

    try:
        live = server(lambda: pages(folders)[0], port)
    except OSError as error:
        raise ConfigError(f"--port {port}: cannot be served from ({error.strerror})", "Leave --port away.") from error
    say(f"http://{ADDRESS}:{live.server_port}/ follows the run; Ctrl-C ends it")
    with live, contextlib.suppress(KeyboardInterrupt):
        live.serve_forever()
    return 0
