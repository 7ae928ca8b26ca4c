"""A table of what each fault cost, for the end of a run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_COLUMNS = ("longest poll", "recovery", "bystander's longest gap")


def show_costs(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the table, if any fault was tried."""
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
