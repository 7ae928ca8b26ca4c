"""A table of how long pages took, for the end of a run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest

PROPERTY = "page"
_COLUMNS = ("from the cause", "from its being true", "at most by the intervals")


@dataclass(frozen=True)
class Delay:
    """Seconds that a page took: since its cause, since what it says was true, and at most by arithmetic."""

    setting: str
    cause: str
    since_cause: float
    since_true: float
    at_most: float


def show_delays(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the table, if there were pages."""
    delays = [
        Delay(*value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if not delays:
        return
    terminalreporter.section("how long pages took to a webhook, in seconds")
    for setting in dict.fromkeys(delay.setting for delay in delays):
        ours = [delay for delay in delays if delay.setting == setting]
        terminalreporter.write_line(f"{setting:<44}" + "".join(f"{column:>26}" for column in _COLUMNS))
        for delay in ours:
            _write(terminalreporter, delay.cause, delay.since_cause, delay.since_true, delay.at_most)
        if len(ours) > 1:
            since_cause, since_true = (
                statistics.median(values)
                for values in zip(*((delay.since_cause, delay.since_true) for delay in ours), strict=True)
            )
            _write(terminalreporter, "median", since_cause, since_true)


def _write(terminalreporter: pytest.TerminalReporter, name: str, *seconds: float) -> None:
    terminalreporter.write_line(f"  {name:<42}" + "".join(f"{value:>26.2f}" for value in seconds))
