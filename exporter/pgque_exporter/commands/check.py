"""`pgque-exporter check`: does the monitoring of each database work, and if not, what to do."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pgque_exporter import catalogue, web_config
from pgque_exporter.commands.options import add_config_options, expand, load_config, redactor
from pgque_exporter.config import Config, TargetConfig
from pgque_exporter.connection import PollError
from pgque_exporter.contract import PollResult
from pgque_exporter.health import by_urgency
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import Family, HistogramFamily
from pgque_exporter.target import poll_once


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "check",
        help="verify each database: connection, packs, grants, one poll",
        description="Connects to each database, finds its packs, verifies the grants and polls once. "
        "Exit code 0 if all of that works, 1 if some of it doesn't, 2 if the configuration is wrong. "
        "Queues in bad health are listed and leave the exit code alone.",
    )
    add_config_options(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Check all databases at once and print a report on each."""
    config = load_config(arguments)
    if config.web_config is not None:
        web_config.load(config.web_config, {})
    reports = asyncio.run(_check_all(config, redactor(config)))
    good = all(report.good for report in reports)
    if arguments.json:
        print(json.dumps({"ok": good, "targets": [_as_json(report) for report in reports]}, indent=2))
    else:
        for report in reports:
            print("\n".join(_as_text(report)))
    return 0 if good else 1


@dataclass(frozen=True)
class _Report:
    """What the check of one database found; `seconds` from the first packet to the parsed rows."""

    name: str
    seconds: float
    result: PollResult | None
    errors: tuple[PollError, ...]

    @property
    def good(self) -> bool:
        return not self.errors


async def _check_all(config: Config, redact: Redactor) -> list[_Report]:
    targets, failures = await expand(config, redact)
    reports = await asyncio.gather(*(_check(target, redact) for target in targets))
    return [*(_Report(name, 0.0, None, (error,)) for name, error in failures.items()), *reports]


async def _check(target: TargetConfig, redact: Redactor) -> _Report:
    started = time.monotonic()
    try:
        result = await poll_once(target, catalogue.load(), redact)
    except PollError as error:
        return _Report(target.name, time.monotonic() - started, None, (error,))
    errors = tuple(failure.error for failure in result.failures)
    return _Report(target.name, time.monotonic() - started, result, errors)


def _series_by_engine(result: PollResult) -> Counter[str]:
    return Counter(
        dict(series.labels)["engine"] for family in _families(result) for series in family.series
    )


def _counts(result: PollResult) -> dict[str, int]:
    """Series by metric."""
    return {family.metric.name: sum(1 for _ in family.series) for family in _families(result)}


def _families(result: PollResult) -> tuple[Family | HistogramFamily, ...]:
    return (*result.snapshot.families, *result.snapshot.histograms)


def _as_text(report: _Report) -> Iterator[str]:
    yield f"{report.name}: {'ok' if report.good else 'FAILED'} ({report.seconds * 1000:.0f} ms)"
    for error in report.errors:
        yield f"  error    {error.kind}: {error.message}{f'. To do: {error.hint}' if error.hint else ''}"
    result = report.result
    if result is None:
        return
    series = _series_by_engine(result)
    for pack in result.packs:
        engine = f"{pack.engine} {pack.engine_version}".strip()
        count = f"{series[pack.engine]} series"
        yield f"  pack     {engine}, pack {pack.pack_version} in schema {pack.schema}: {count}"
    for schema in result.ignored:
        yield (
            f"  ignored  schema {schema}: not owned by the database's owner or a superuser. "
            "To do: name it in `packs` if you trust it"
        )
    for name, number in _counts(result).items():
        yield f"  metric   {name}: {number}"
    for reason, rows in result.snapshot.dropped.items():
        if rows:
            yield f"  dropped  {rows} rows: {reason}"
    yield f"  health   {result.snapshot.checks_ok} checks ok, {len(result.snapshot.checks)} not ok"
    for check in by_urgency(result.snapshot.checks):
        yield f"           {check.status:8} {check.queue} {check.check}: {check.detail}"


def _as_json(report: _Report) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "name": report.name,
        "ok": report.good,
        "seconds": round(report.seconds, 4),
        "errors": [
            {"kind": error.kind, "message": error.message, "hint": error.hint} for error in report.errors
        ],
    }
    result = report.result
    if result is not None:
        series = _series_by_engine(result)
        answer |= {
            "packs": [{**asdict(pack), "series": series[pack.engine]} for pack in result.packs],
            "ignored": list(result.ignored),
            "metrics": _counts(result),
            "dropped": dict(result.snapshot.dropped),
            "checks_ok": result.snapshot.checks_ok,
            "checks": [asdict(check) for check in result.snapshot.checks],
        }
    return answer
