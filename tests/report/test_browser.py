"""The pages in a real browser: nothing goes wrong, nothing is fetched, everybody can read them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.report.browser import AXE, Browser, needs_chromium

import pytorchrl as prl
from pytorchrl.cli.report import pages
from pytorchrl.report.serve import server
from pytorchrl.run_folder import RunFolder

pytestmark = needs_chromium
needs_axe = pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
LOOKS = {"light": {}, "dark": {"dark": True}, "phone": {"width": 390}}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Three short runs; the first has a video."""
    folder = tmp_path_factory.mktemp("runs")
    overrides = {"storage.size": 32, "env.num_envs": 2, "run.eval_every": 256, "algorithm.num_test_episodes": 1}
    made = []
    for name, seed, lr in (("a", 1, 1e-3), ("b", 2, 1e-3), ("c", 1, 1e-2)):
        own = overrides | {"algorithm.lr": lr}
        run = prl.train("ppo", "CartPole-v1", steps=512, seed=seed, overrides=own, run=folder / name)
        made.append(RunFolder(run.path))
    (folder / "a" / "videos").mkdir()
    still = Image.new("RGB", (64, 48), "gray")
    still.save(folder / "a" / "videos" / "512.gif", save_all=True, append_images=[still])
    return made


@pytest.mark.parametrize("count", [1, 3])
class TestPages:
    @pytest.fixture
    def page(self, browser: Browser, runs: list[RunFolder], count: int, tmp_path: Path) -> Browser:
        file = tmp_path / "page.html"
        file.write_text(pages(runs[:count])[0])
        browser.look()
        browser.open(file.as_uri())
        return browser

    def test_nothing_goes_wrong_and_nothing_is_fetched(self, page: Browser) -> None:
        assert page.messages == []
        assert [url for url in page.requests if not url.startswith("data:")] == page.requests[:1]
        assert page.requests[0].startswith("file:")

    @needs_axe
    def test_accessible_in_light_dark_and_on_a_phone(self, page: Browser) -> None:
        for options in LOOKS.values():
            page.look(**options)  # type: ignore[arg-type]
            assert page.complaints() == []

    def test_a_phone_need_not_scroll_sideways(self, page: Browser) -> None:
        page.look(width=390)
        assert page.value("document.documentElement.scrollWidth") <= 390
        small = "Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height)"
        assert page.value(small + ".filter(height => height > 0))") >= 10.5

    def test_dark_is_dark(self, page: Browser, tmp_path: Path) -> None:
        for dark in (False, True):
            page.look(dark=dark)
            page.screenshot(tmp_path / "page.png")
            shade = Image.open(tmp_path / "page.png").convert("L").resize((1, 1)).getpixel((0, 0))
            assert isinstance(shade, int)
            assert (shade < 80) == dark


def test_choices_show_one_view_at_a_time(browser: Browser, runs: list[RunFolder], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(pages(runs[:1])[0])
    browser.look()
    browser.open(file.as_uri())
    shown = "[...document.querySelectorAll('figure')].filter(f => f.offsetParent).map(f => f.className)"
    seen = [set(browser.value(shown))]
    for choice in ("by-time", "raw"):
        browser.value(f"document.getElementById('{choice}').click()")
        seen.append(set(browser.value(shown)))
    evaluation = {"by-steps wide"}, {"by-time wide"}, {"by-time wide"}
    kinds = "by-steps smoothed", "by-time smoothed", "by-time raw"
    assert seen == [{f"{kind} wide", f"{kind} half"} | own for kind, own in zip(kinds, evaluation, strict=True)]


def test_live_follows_the_run(browser: Browser, runs: list[RunFolder]) -> None:
    text = (
        "<!doctype html><html lang='en'><head><title>t</title></head><body><main><p id='n'>1</p></main></body></html>"
    )
    said = {"page": text}
    live = server(lambda: said["page"])
    threading.Thread(target=live.serve_forever, daemon=True).start()
    try:
        browser.open(f"http://127.0.0.1:{live.server_port}/")
        said["page"] = text.replace(">1<", ">2<")
        wait = (
            "new Promise(done => { const look = () => document.getElementById('n').textContent === '2' ? done(1)"
            " : setTimeout(look, 100); look(); })"
        )
        assert browser.value(wait) == 1
        assert browser.messages == []
        assert {url for url in browser.requests if url.startswith("http")} == {f"http://127.0.0.1:{live.server_port}/"}
    finally:
        live.shutdown()
        live.server_close()
