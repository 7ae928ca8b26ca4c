"""The demo and its history, a Prometheus that scrapes both, and a collector: live data for dashboards."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.collector import OtlpSink, run_sink
from tests.support.history import run_history
from tests.support.processes import Process
from tests.support.prometheus import Prometheus, run_prometheus
from tests.support.repository import ROOT

RULES = ROOT / "alerts" / "rules"


@dataclass(frozen=True)
class WatchedDemo:
    """A running demo, and who watches it."""

    demo: Process
    address: str  # host:port of its pages
    prometheus: Prometheus
    sink: OtlpSink


@contextmanager
def run_watched_demo(
    folder: Path, *, scrape_interval: str, jobs: Mapping[str, Sequence[str]] | None = None
) -> Iterator[WatchedDemo]:
    """All of it, with the project's recording rules, until the end of the block.

    `jobs` are more jobs that Prometheus scrapes, by name: addresses, where "demo" is the demo's own.
    """
    with run_sink() as sink, run_history(folder) as history:
        demo = Process(
            [sys.executable, "-u", "-m", "pgque_exporter", "demo", "--port=0"],
            log=folder / "demo.log",
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{sink.http_address}"},
            cwd=folder,
        )
        with demo:
            page = demo.wait_for(
                lambda: re.search(r"http://(\S+)/metrics", demo.output()), "the demo's addresses", timeout=60
            )
            assert page
            own = {"demo": [page[1]], "history": [history]}
            scraped = {
                name: [own["demo"][0] if address == "demo" else address for address in addresses]
                for name, addresses in (own | dict(jobs or {})).items()
            }
            configs = [
                {"job_name": name, "static_configs": [{"targets": addresses}]}
                for name, addresses in scraped.items()
            ]
            rules = _rules(folder, scrape_interval)
            with run_prometheus(
                folder=folder,
                scrape_interval=scrape_interval,
                rule_files=rules,
                extra={"scrape_configs": configs},
            ) as prometheus:
                yield WatchedDemo(demo, page[1], prometheus, sink)


def _rules(folder: Path, interval: str) -> list[Path]:
    """The project's rules, looked at with every scrape and true at once: nobody waits for minutes here."""
    copies = []
    for path in sorted(RULES.glob("*.yml")):
        content: Any = yaml.safe_load(path.read_text("utf-8"))
        for group in content["groups"]:
            group["interval"] = interval
            for rule in group["rules"]:
                rule.pop("for", None)
        copy = folder / f"rules-{path.name}"
        copy.write_text(yaml.safe_dump(content), "utf-8")
        copies.append(copy)
    return copies
