"""Prometheus and Alertmanager with the shipped rules, in a hurry or as shipped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.alerts.documents import ALERTMANAGER, RULE_FILES, read
from tests.support.alertmanager import Alertmanager, Receiver, run_alertmanager
from tests.support.prometheus import Prometheus, run_prometheus


@dataclass(frozen=True)
class Pace:
    """How fast all of it goes. `hurried`: rules wait for nothing, and notifications neither."""

    name: str
    interval: float  # seconds between scrapes, and between evaluations
    hurried: bool

    def at_most(self, *, poll: float, wait: float, group_wait: float) -> float:
        """Seconds from a fact in the database to its page: a poll, a scrape, an evaluation, and the waits.

        An alert that waits is looked at once more at the end of its time.
        """
        if self.hurried:
            wait = group_wait = 0
        return poll + 2 * self.interval + (wait + self.interval if wait else 0) + group_wait


HURRIED = Pace("every second, `for: 0s`, no group_wait", 1, hurried=True)
SHIPPED = Pace("every 15 s, rules and Alertmanager as shipped", 15, hurried=False)


@dataclass(frozen=True)
class Stack:
    """The two of them; where its notifications go begins with the stack's `path`."""

    prometheus: Prometheus
    alertmanager: Alertmanager
    path: str


@contextmanager
def run_stack(
    pace: Pace, jobs: Mapping[str, Sequence[str]], receiver: Receiver, folder: Path
) -> Iterator[Stack]:
    """A Prometheus that scrapes these jobs (addresses by name), and the Alertmanager that it tells."""
    folder.mkdir()
    path = f"/{folder.name}"
    seconds = f"{pace.interval:g}s"
    with run_alertmanager(_alertmanager(pace, receiver.url + path), folder=folder / "am") as alertmanager:
        extra = {
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": list(addresses)}]}
                for name, addresses in jobs.items()
            ],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.address]}]}]},
        }
        rules = hurried_rules(folder) if pace.hurried else RULE_FILES
        with run_prometheus(
            folder=folder, scrape_interval=seconds, rule_files=rules, extra=extra
        ) as prometheus:
            yield Stack(prometheus, alertmanager, path)


def hurried_rules(folder: Path) -> list[Path]:
    """The shipped rules, without the time that an alert has to last; that on absence keeps it, as Prometheus
    looks for its targets only after some seconds."""
    written = []
    for path in RULE_FILES:
        document = read(path)
        for group in document["groups"]:
            group.pop("interval", None)
            for rule in group["rules"]:
                if rule.get("alert") not in (None, "PgQueMetricsAbsent"):
                    rule.pop("for", None)
        written.append(folder / path.name)
        written[-1].write_text(json.dumps(document), "utf-8")  # JSON is YAML too
    return written


def _alertmanager(pace: Pace, url: str) -> dict[str, Any]:
    """The shipped example, with its receivers at `url`."""
    config: dict[str, Any] = yaml.safe_load(
        ALERTMANAGER.read_text("utf-8").replace("http://127.0.0.1:9999", url)
    )
    if pace.hurried:
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": "0s", "group_interval": "1s"}
    return config
