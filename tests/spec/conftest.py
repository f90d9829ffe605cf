"""Say at the end of a run which documented classes are not built yet; pytest's dots alone would hide them."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = {report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped")}
    for reason in sorted(reason for reason in reasons if reason.startswith("not built yet: ")):
        terminalreporter.write_line(reason)
