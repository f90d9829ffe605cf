"""A real browser for the tests: Chromium without a window, spoken to over its pipe."""

from __future__ import annotations

import base64
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(BINARY is None, reason="chromium is not installed")
AXE = importlib.util.find_spec("axe_core_python")
SECONDS = 60
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe"""


class Browser:
    """One page; ``messages`` is what it complained about, ``requests`` what it asked for."""

    def __init__(self, profile: Path) -> None:
        (our_end, their_input), (their_output, our_input) = os.pipe(), os.pipe()
        command = [str(BINARY), *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]

        def place() -> None:  # the protocol speaks on descriptors 3 and 4
            first, second = os.dup(our_end), os.dup(our_input)
            os.dup2(first, 3)
            os.dup2(second, 4)

        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=place, close_fds=False)
        os.close(our_end)
        os.close(our_input)
        self._write, self._read = their_input, their_output
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(info["targetId"] for info in targets if info["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One request of the protocol and its answer; events on the way are noted."""
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            message = self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
        raise TimeoutError(method)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(str([argument.get("value") for argument in told["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(told["exceptionDetails"]["text"]))
        elif method == "Log.entryAdded":
            self.messages.append(str(told["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(told["request"]["url"]))
        elif method == "Page.loadEventFired":
            self.loaded = True
        return message

    def open(self, url: str) -> None:
        self.loaded, self.messages, self.requests = False, [], []
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self._next()

    def look(self, dark: bool = False, width: int = 1000) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression (or the promise that it is) comes to."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What axe finds serious about the page's accessibility."""
        assert AXE is not None
        assert AXE.submodule_search_locations is not None
        script = Path(AXE.submodule_search_locations[0]) / "axe.min.js"
        self.value(script.read_text("utf-8") + "; 0")
        found = self.value("axe.run().then(all => all.violations.map(v => [v.impact, v.id, v.nodes[0].html]))")
        return [f"{rule}: {where[:200]}" for impact, rule, where in found if impact in ("serious", "critical")]

    def screenshot(self, path: Path) -> bytes:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 6000), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        data = base64.b64decode(shot["data"])
        path.write_bytes(data)
        return data

    def close(self) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(SECONDS)
        os.close(self._read)
