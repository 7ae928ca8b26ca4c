"""The rules: right by promtool, tested each way, and leading somebody who is woken to where help is."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from tests.alerts.documents import (
    ALERTMANAGER,
    FOLDER,
    RULE_FILES,
    RUNBOOKS,
    UNIT_TESTS,
    Rule,
    alerts,
    cases,
    fired,
    metrics_in,
    read,
    recorded,
)
from tests.support.dashboards import boards
from tests.support.prometheus import promtool
from tests.support.repository import ROOT
from tests.support.series import exported

ALERTS = alerts()
SEVERITIES = {"critical", "warning", "none"}
ANNOTATIONS = {"summary", "description", "runbook_url", "dashboard_url"}
HEADINGS = ("**Meaning.**", "**Impact", "## Diagnosis", "## Mitigation")
OF_PROMETHEUS = {"up", "ALERTS"}
# Words that look like metrics and are roles or schemas.
NO_METRICS = {"pgque_monitor", "pgque_admin", "pgque_reader", "pgque_writer"}

each_alert = pytest.mark.parametrize("rule", ALERTS.values(), ids=list(ALERTS))


# --- promtool ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [*RULE_FILES, FOLDER / "grafana/recording-rules.yml"], ids=lambda path: str(path.name)
)
def test_promtool_accepts_the_rules(path: Path) -> None:
    result = promtool("check", "rules", "--lint=all", "--lint-fatal", path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: str(path.name))
def test_the_unit_tests_pass(path: Path) -> None:
    result = promtool("test", "rules", path, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


@each_alert
def test_each_alert_is_seen_to_fire_and_to_be_quiet(rule: Rule) -> None:
    name = rule["alert"]
    firing = [case for _, case in cases() if case["name"].startswith(f"{name} fires: ")]
    quiet = [case for _, case in cases() if case["name"].startswith(f"{name} is quiet: ")]
    assert firing
    assert all(name in dict(fired(case)) for case in firing)
    assert quiet or rule["expr"] == "vector(1)", "the watchdog alone is never quiet"
    assert not any(name in dict(fired(case)) for case in quiet)


def test_the_situations_that_matter_are_among_the_tests() -> None:
    names = " / ".join(case["name"] for _, case in cases())
    for words in (
        "An idle queue never pages",
        "PgQueTickerStalled is quiet: a queue that is paused",
        "it stays when the exporter dies, and PgQueExporterDown joins it",
        "a scrape gap neither hides it nor makes it flap",
        "two jobs that know a database by the same name",
    ):
        assert words in names


def test_what_is_told_has_no_holes(tmp_path: Path) -> None:
    """Each alert's texts as they are when it fires: promtool shows them when it expects none."""
    asked = tmp_path / "asked.yml"
    names: set[str] = set()
    for path in UNIT_TESTS:
        tests: dict[str, object] = {}
        for case in read(path)["tests"]:
            for name, time in fired(case):
                if case["name"].startswith(f"{name} fires: "):
                    check = {"alertname": name, "eval_time": time, "exp_alerts": []}
                    kept = {key: case[key] for key in ("interval", "input_series")}
                    tests.setdefault(name, {**kept, "alert_rule_test": [check]})
        rules = [str(file) for file in RULE_FILES]
        interval = read(path)["evaluation_interval"]
        document = {"rule_files": rules, "evaluation_interval": interval, "tests": list(tests.values())}
        asked.write_text(yaml.safe_dump(document), "utf-8")
        result = promtool("test", "rules", asked, timeout=300)
        output = result.stdout + result.stderr
        assert set(re.findall(r'Labels:\{alertname="(\w+)"', output)) == set(tests), output
        names |= set(tests)
        for text in re.findall(r"Annotations:\{(.*)\}", output):
            assert not re.search(r"<error|<no value>|%!|\{\{|NaN|  | ,", text), text
            assert not re.search(r'dashboard_url="[^"]*=(&|")', text), text
    assert names == set(ALERTS)


# --- labels, annotations, links ------------------------------------------------------------------


@each_alert
def test_each_alert_says_how_bad_it_is_and_where_to_go_on(rule: Rule) -> None:
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == ANNOTATIONS
    assert len(rule["annotations"]["summary"]) < 160
    if rule["labels"]["severity"] != "none":
        assert "keep_firing_for" in rule


@each_alert
def test_each_alert_has_a_runbook(rule: Rule) -> None:
    assert rule["annotations"]["runbook_url"] == f"/alerts/runbooks/{rule['alert']}.md"
    text = (ROOT / rule["annotations"]["runbook_url"].lstrip("/")).read_text("utf-8")
    assert text.startswith(f"# {rule['alert']}\n")
    places = [text.find(heading) for heading in HEADINGS]
    assert -1 not in places
    assert places == sorted(places)
    assert "```sql\n" in text, "a diagnosis has SQL to run"


def test_each_runbook_has_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*ALERTS, "README"}


@cache
def dashboards() -> dict[str, Set[str]]:
    """The names of each dashboard's variables, by its uid."""
    return {board.uid: {variable["name"] for variable in board.variables} for board in boards()}


@each_alert
def test_each_alert_leads_to_a_dashboard(rule: Rule) -> None:
    link = urlsplit(re.sub(r"\{\{.*?\}\}", "x", rule["annotations"]["dashboard_url"]))
    kind, _, uid = link.path.lstrip("/").partition("/")
    assert kind == "d"
    known = dashboards()
    assert uid in known
    assert {name.removeprefix("var-") for name, _ in parse_qsl(link.query)} <= known[uid]


# --- names ---------------------------------------------------------------------------------------


def test_names_are_found_in_an_expression() -> None:
    expression = """
        max without (instance, pod) (last_over_time(a_b{c="d_e"}[2m])) * 0 + 300 > 1.5 * x:y:z offset 1h
        unless ignoring (consumer) sum by (queue) (up) == bool ALERTS
    """
    assert metrics_in(expression) == {"a_b", "x:y:z", "up", "ALERTS"}


def test_every_metric_of_a_rule_is_exported_or_recorded() -> None:
    known = exported() | set(recorded()) | OF_PROMETHEUS
    rules = {**ALERTS, **recorded()}
    strange = {name: metrics_in(rule["expr"]) - known for name, rule in rules.items()}
    assert {name: metrics for name, metrics in strange.items() if metrics} == {}


def test_every_metric_of_a_unit_test_is_exported() -> None:
    series = {entry["series"] for _, case in cases() for entry in case["input_series"]}
    assert {name.partition("{")[0] for name in series} - exported() - {"up"} == set()


def test_every_metric_of_a_runbook_is_exported() -> None:
    for path in RUNBOOKS.glob("*.md"):
        named = set(re.findall(r"\bpgque_\w+", path.read_text("utf-8"))) - NO_METRICS
        assert named - exported() == {"pgque_observability"} & named, path.name


def test_alertmanager_knows_the_alerts_by_their_names() -> None:
    named = set(re.findall(r"PgQue\w+", ALERTMANAGER.read_text("utf-8")))
    families = {name for name in named if any(alert.startswith(name) for alert in ALERTS)}
    assert named - set(ALERTS) - families == set()
