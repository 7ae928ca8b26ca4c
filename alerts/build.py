"""Write what is made from the Prometheus rules in `rules/`: the same for Grafana and an Operator, a table.

    python alerts/build.py            write them
    python alerts/build.py --check    write nothing; exit 1 when a committed file differs

The committed files name runbooks and dashboards by path. A copy with whole addresses, the rules included:

    python alerts/build.py --to FOLDER --grafana https://grafana.example.com --datasource UID \\
        --runbooks https://git.example.com/pgque-exporter/blob/main
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).resolve().parent
RULES = ALERTS / "rules"

GRAFANA = "grafana/provisioning/alerting/pgque-rules.yaml"
GRAFANA_RECORDING = "grafana/recording-rules.yml"
OPERATOR = "kubernetes/prometheus-rule.yaml"
README = "README.md"

_HEAD = "# Made from alerts/rules by alerts/build.py.\n"
_GRAFANA_INTERVAL = "30s"  # where Prometheus takes its own default

Rule = dict[str, Any]
Group = dict[str, Any]


@dataclass(frozen=True)
class Addresses:
    """What stands before the paths of dashboards and runbooks, and Grafana's name for the Prometheus."""

    grafana: str = ""
    runbooks: str = ""
    datasource: str = "prometheus"


def outputs(groups: Mapping[str, list[Group]], addresses: Addresses) -> dict[str, str]:
    """Text by path, of all files made from the groups of each rule file."""
    every = [addressed(group, addresses) for found in groups.values() for group in found]
    return {
        GRAFANA: text(grafana(every, addresses.datasource)),
        GRAFANA_RECORDING: text({"groups": recording(every)}),
        OPERATOR: text(operator(every)),
    }


def table(groups: list[Group]) -> str:
    """The alerts as a Markdown table, pages first."""
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    severities = ("critical", "warning", "none")
    lines = ["| alert | severity | after |", "|---|---|---|"]
    for rule in sorted(alerts, key=lambda rule: severities.index(rule["labels"]["severity"])):
        name = rule["alert"]
        severity, lasts = rule["labels"]["severity"], rule.get("for", "at once")
        lines.append(f"| [`{name}`](runbooks/{name}.md) | {severity} | {lasts} |")
    return "\n".join(lines)


def readme(groups: list[Group]) -> str:
    """README.md with its table as it should be."""
    pattern = re.compile(r"(<!-- alerts: generated -->\n).*?(<!-- /alerts -->)", re.DOTALL)
    content = (ALERTS / README).read_text("utf-8")
    return pattern.sub(lambda match: f"{match[1]}{table(groups)}\n{match[2]}", content)


def addressed(group: Group, addresses: Addresses) -> Group:
    """The group with whole addresses in its annotations."""
    before = {"runbook_url": addresses.runbooks, "dashboard_url": addresses.grafana}
    return {
        **group,
        "rules": [
            {
                **rule,
                "annotations": {
                    name: before.get(name, "").rstrip("/") + value
                    for name, value in rule["annotations"].items()
                },
            }
            if "alert" in rule
            else rule
            for rule in group["rules"]
        ],
    }


def recording(groups: list[Group]) -> list[Group]:
    """The groups without their alerts, which Grafana then has."""
    found = [{**group, "rules": [rule for rule in group["rules"] if "record" in rule]} for group in groups]
    return [group for group in found if group["rules"]]


def operator(groups: list[Group]) -> dict[str, Any]:
    """A manifest for the Prometheus Operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "pgque-exporter", "labels": {"app.kubernetes.io/name": "pgque-exporter"}},
        "spec": {"groups": groups},
    }


def grafana(groups: list[Group], datasource: str) -> dict[str, Any]:
    """Alert rules as Grafana provisions them from files."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": group["name"],
                "folder": "PgQue",
                "interval": group.get("interval", _GRAFANA_INTERVAL),
                "rules": [grafana_rule(rule, datasource) for rule in group["rules"] if "alert" in rule],
            }
            for group in groups
        ],
    }


def grafana_rule(rule: Rule, datasource: str) -> Rule:
    """One rule. As in Prometheus it fires for each series of the answer, whatever that one's value."""
    kept = {"keepFiringFor": rule["keep_firing_for"]} if "keep_firing_for" in rule else {}
    return {
        "uid": re.sub(r"(?<=[a-z])(?=[A-Z])", "-", rule["alert"].replace("PgQue", "Pgque")).lower(),
        "title": rule["alert"],
        "condition": "B",
        "for": rule.get("for", "0s"),
        **kept,
        "noDataState": "OK",
        "execErrState": "Error",
        "isPaused": False,
        "labels": rule["labels"],
        "annotations": {
            name: value.replace("$value", "$values.A.Value") for name, value in rule["annotations"].items()
        },
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": 600, "to": 0},
                "datasourceUid": datasource,
                "model": {"refId": "A", "expr": rule["expr"], "instant": True, "range": False},
            },
            {
                "refId": "B",
                "relativeTimeRange": {"from": 0, "to": 0},
                "datasourceUid": "__expr__",
                "model": {
                    "refId": "B",
                    "type": "math",
                    "expression": "is_number($A) || is_nan($A) || is_inf($A)",
                },
            },
        ],
    }


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines as they were written."""


def _lines(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _lines)
_Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]


def text(document: Mapping[str, Any]) -> str:
    """A document as YAML."""
    return _HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


def read_rules() -> dict[str, list[Group]]:
    """The groups of each file in `rules/`."""
    files = sorted(RULES.glob("*.yml"))
    return {path.name: yaml.safe_load(path.read_text("utf-8"))["groups"] for path in files}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write what is made from the Prometheus rules.")
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 on a difference")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="write a copy there, with whole addresses")
    parser.add_argument("--grafana", default="", metavar="URL", help="what stands before /d/...")
    parser.add_argument("--runbooks", default="", metavar="URL", help="what stands before /alerts/...")
    parser.add_argument("--datasource", default=Addresses.datasource, metavar="UID", help="in Grafana")
    arguments = parser.parse_args()

    groups = read_rules()
    addresses = Addresses(arguments.grafana, arguments.runbooks, arguments.datasource)
    files = outputs(groups, addresses)
    if arguments.to is not None:
        for name, found in groups.items():
            files[f"rules/{name}"] = text({"groups": [addressed(group, addresses) for group in found]})
    elif addresses != Addresses():
        parser.error("addresses are for a copy: say where, by --to FOLDER")
    else:
        files[README] = readme([group for found in groups.values() for group in found])

    folder = arguments.to if arguments.to is not None else ALERTS
    stale = 0
    for name, content in files.items():
        path = folder / name
        if path.exists() and path.read_text("utf-8") == content:
            continue
        if arguments.check:
            print(f"{name} is out of date: run make generate", file=sys.stderr)
            stale = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
