"""What stands in `alerts/`: rules, their unit tests, runbooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.repository import ROOT

FOLDER = ROOT / "alerts"
RULE_FILES = sorted((FOLDER / "rules").glob("*.yml"))
UNIT_TESTS = sorted((FOLDER / "tests").glob("*.yml"))
RUNBOOKS = FOLDER / "runbooks"
ALERTMANAGER = FOLDER / "alertmanager.yml"

Rule = dict[str, Any]
Case = dict[str, Any]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def groups() -> Iterator[dict[str, Any]]:
    for path in RULE_FILES:
        yield from read(path)["groups"]


def alerts() -> dict[str, Rule]:
    """Alerting rules by name."""
    return {rule["alert"]: rule for group in groups() for rule in group["rules"] if "alert" in rule}


def recorded() -> dict[str, Rule]:
    """Recording rules by the name that they record."""
    return {rule["record"]: rule for group in groups() for rule in group["rules"] if "record" in rule}


def cases() -> list[tuple[Path, Case]]:
    """The unit tests and the files they stand in."""
    return [(path, case) for path in UNIT_TESTS for case in read(path)["tests"]]


def fired(case: Case) -> list[tuple[str, str]]:
    """Names of alerts that a unit test expects to fire, and when."""
    return [
        (match[1], check["eval_time"])
        for check in case["promql_expr_test"]
        for sample in check["exp_samples"]
        if (match := re.search(r'alertname="(\w+)"', sample["labels"])) and "pending" not in check["expr"]
    ]


_TEXTS_AND_GROUPINGS = re.compile(
    r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left)\s*\([^)]*\)'
)
_FUNCTIONS_AND_NUMBERS = re.compile(r"\b\w+(?=\s*\()|\b\d[\w.]*")
_WORDS = {"and", "or", "unless", "offset", "bool"}


def metrics_in(expression: str) -> set[str]:
    """Names of metrics in a PromQL expression."""
    bare = _FUNCTIONS_AND_NUMBERS.sub(" ", _TEXTS_AND_GROUPINGS.sub(" ", expression))
    return set(re.findall(r"[A-Za-z_:][\w:]*", bare)) - _WORDS
