"""Two servers to try faults on, and at the end of the run a table of what each fault cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.faults.stage import Stage, stage

_COLUMNS = ("longest poll", "recovery", "bystander's longest gap")


@pytest.fixture(scope="package")
def victim() -> Iterator[Stage]:
    """The server that things happen to."""
    with stage() as staged:
        yield staged


@pytest.fixture(scope="package")
def bystander() -> Iterator[Stage]:
    """The server that nothing happens to."""
    with stage() as staged:
        yield staged


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = []
    for report in terminalreporter.getreports("passed"):
        found = dict(report.user_properties)
        if _COLUMNS[0] in found:
            _, _, name = report.nodeid.removesuffix("]").rpartition("[" if "[" in report.nodeid else "test_")
            rows.append(_row(name, (f"{found[column]:.2f}" for column in _COLUMNS)))
    if rows:
        terminalreporter.section("what the faults cost, in seconds")
        terminalreporter.write_line(_row("", _COLUMNS))
        for row in rows:
            terminalreporter.write_line(row)


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:<34}" + "".join(
        f"{cell:>{len(column) + 4}}" for cell, column in zip(cells, _COLUMNS, strict=True)
    )
