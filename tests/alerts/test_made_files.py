"""What is made from the rules says the same as they do, and a copy has whole addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.alerts.documents import FOLDER, RULE_FILES, alerts, groups, read
from tests.support.prometheus import promtool

ALERTS = alerts()
GRAFANA = "grafana/provisioning/alerting/pgque-rules.yaml"
OPERATOR = "kubernetes/prometheus-rule.yaml"


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "build.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def grafana_rules() -> dict[str, dict[str, Any]]:
    return {rule["title"]: rule for group in read(FOLDER / GRAFANA)["groups"] for rule in group["rules"]}


def test_grafana_has_every_alert_with_its_expression_and_patience() -> None:
    found = grafana_rules()
    assert set(found) == set(ALERTS)
    for name, rule in ALERTS.items():
        made = found[name]
        query, condition = made["data"]
        assert query["model"]["expr"] == rule["expr"]
        assert query["model"]["instant"] is True
        assert query["refId"] == query["model"]["refId"] == "A"
        assert condition["refId"] == condition["model"]["refId"] == made["condition"] == "B"
        assert condition["datasourceUid"] == "__expr__"
        assert made["for"] == rule.get("for", "0s")
        assert made.get("keepFiringFor") == rule.get("keep_firing_for")
        assert made["labels"] == rule["labels"]
        assert made["noDataState"] == "OK", "no series means that nothing fires"
        assert made["annotations"].keys() == rule["annotations"].keys()
        assert "$value " not in "".join(made["annotations"].values())


def test_grafana_takes_the_names_of_its_rules() -> None:
    uids = [rule["uid"] for rule in grafana_rules().values()]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[a-z][a-z-]{0,39}", uid) for uid in uids)
    assert "pgque-health-critical" in uids


def test_what_grafana_leaves_to_prometheus_is_every_recording_and_no_alert() -> None:
    rules = [
        rule for group in read(FOLDER / "grafana/recording-rules.yml")["groups"] for rule in group["rules"]
    ]
    assert rules == [rule for group in groups() for rule in group["rules"] if "record" in rule]


def test_the_operator_gets_all_groups() -> None:
    manifest = read(FOLDER / OPERATOR)
    assert (manifest["apiVersion"], manifest["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    found = {group["name"]: group for group in manifest["spec"]["groups"]}
    assert found == {group["name"]: group for group in groups()}


def test_a_copy_has_whole_addresses(tmp_path: Path) -> None:
    addresses = (
        "--grafana",
        "https://g.example/",
        "--runbooks",
        "https://r.example/main",
        "--datasource",
        "abc",
    )
    result = build("--to", tmp_path, *addresses)
    assert result.returncode == 0, result.stderr
    for path in (tmp_path / "rules").iterdir():
        assert promtool("check", "rules", path).returncode == 0
    copied = "".join(path.read_text("utf-8") for path in (tmp_path / "rules").iterdir())
    assert copied.count("dashboard_url: https://g.example/d/pgque-") == len(ALERTS)
    assert copied.count("runbook_url: https://r.example/main/alerts/runbooks/PgQue") == len(ALERTS)
    assert {path.name for path in (tmp_path / "rules").iterdir()} == {path.name for path in RULE_FILES}
    made = (tmp_path / GRAFANA).read_text("utf-8")
    assert made.count("datasourceUid: abc\n") == len(ALERTS)
    assert made.count("dashboard_url: https://g.example/d/pgque-") == len(ALERTS)
    assert "https://g.example/d/pgque-" in (tmp_path / OPERATOR).read_text("utf-8")


def test_addresses_without_a_place_are_refused() -> None:
    result = build("--check", "--grafana", "https://g.example")
    assert result.returncode == 2
    assert "say where, by --to FOLDER" in result.stderr
