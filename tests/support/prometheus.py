"""A real Prometheus that scrapes what a test gives it, and promtool's judgement of a page."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.debian import find_program
from tests.support.processes import Process, wait_for
from tests.support.tools import Program, Unavailable

_CLIENT_TIMEOUT = 10.0


@dataclass(frozen=True)
class Sample:
    """One series of an instant query's answer."""

    labels: Mapping[str, str]
    value: float
    time: float


class Prometheus:
    """A running server's HTTP API."""

    def __init__(self, url: str, process: Process) -> None:
        self.url = url
        self.process = process

    def query(self, expression: str) -> list[Sample]:
        """Answer of an instant query: a vector's samples, or a scalar as one without labels."""
        data = self._get("query", query=expression)
        if data["resultType"] == "scalar":
            data["result"] = [{"metric": {}, "value": data["result"]}]
        return [
            Sample(labels=row["metric"], value=float(row["value"][1]), time=float(row["value"][0]))
            for row in data["result"]
        ]

    def value(self, expression: str) -> float | None:
        """The value of a query that answers with one sample at most; None without one."""
        samples = self.query(expression)
        assert len(samples) <= 1, f"{expression} has {len(samples)} samples: {samples}"
        return samples[0].value if samples else None

    def wait_for(
        self,
        expression: str,
        predicate: Callable[[list[Sample]], object] = bool,
        *,
        timeout: float = 20.0,
    ) -> list[Sample]:
        """Wait until the query's answer satisfies the predicate (by default: has samples)."""
        answer: list[Sample] = []

        def satisfied() -> bool:
            answer[:] = self.query(expression)
            return bool(predicate(answer))

        try:
            wait_for(satisfied, expression, timeout=timeout)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\nlast answer: {answer}\ntargets: {self.targets()}{self.process.log_tail()}"
            ) from None
        return answer

    def targets(self) -> list[dict[str, Any]]:
        """Active targets: scrapeUrl, health, lastError, lastScrapeDuration and more."""
        active: list[dict[str, Any]] = self._get("targets", state="active")["activeTargets"]
        return active

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that are pending or firing."""
        alerts: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return alerts

    def rules(self) -> list[dict[str, Any]]:
        """Rules of all groups: name, type, health, lastError, evaluationTime and more."""
        groups: list[dict[str, Any]] = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def alertmanagers(self) -> list[dict[str, Any]]:
        """Alertmanagers that it tells of alerts: url."""
        active: list[dict[str, Any]] = self._get("alertmanagers")["activeAlertmanagers"]
        return active

    def reload(self) -> None:
        """Read configuration and rules anew."""
        httpx.post(f"{self.url}/-/reload", timeout=_CLIENT_TIMEOUT).raise_for_status()

    def _get(self, endpoint: str, **params: str) -> dict[str, Any]:
        response = httpx.get(f"{self.url}/api/v1/{endpoint}", params=params, timeout=_CLIENT_TIMEOUT)
        body = response.json()
        assert body["status"] == "success", f"{endpoint} {params}: {body.get('error')}"
        data: dict[str, Any] = body["data"]
        return data


@contextmanager
def run_prometheus(
    *addresses: str,
    folder: Path,
    scrape_interval: str = "1s",
    path: str = "/metrics",
    rule_files: Sequence[Path] = (),
    extra: Mapping[str, Any] | None = None,
) -> Iterator[Prometheus]:
    """A Prometheus with its data in `folder`, scraping `host:port` addresses as job `test`.

    `extra` is merged into the top of its configuration. The first scrape comes after 5 s: Prometheus
    looks no more often for new targets, and no option changes that. So let tests share one where they
    can. Skips the test where no Prometheus can be had.
    """
    program = require_program("prometheus")
    # JSON is YAML too.
    config = {
        "global": {
            "scrape_interval": scrape_interval,
            "scrape_timeout": scrape_interval,
            "evaluation_interval": scrape_interval,
        },
        "rule_files": [str(rule_file) for rule_file in rule_files],
        "scrape_configs": [
            {"job_name": "test", "metrics_path": path, "static_configs": [{"targets": list(addresses)}]}
        ],
        **(extra or {}),
    }
    config_file = folder / "prometheus.yml"
    config_file.write_text(json.dumps(config, indent=2), "utf-8")
    process = Process(
        [
            program.path,
            f"--config.file={config_file}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",  # the port that it got stands in its log
            "--web.enable-lifecycle",
        ],
        log=folder / "prometheus.log",
        env=program.env,
        cwd=folder,
    )
    with process:
        yield Prometheus(f"http://{ready_address(process)}", process)


def ready_address(process: Process) -> str:
    """Host and port of a server of the Prometheus family, once it is ready; they stand in its log."""
    listening = process.wait_for(
        lambda: re.search(r'msg="?Listening on"? address=(\S+:\d+)', process.output()), "it listens"
    )
    assert listening
    address = listening[1]
    process.wait_for(
        lambda: httpx.get(f"http://{address}/-/ready", timeout=_CLIENT_TIMEOUT).is_success,
        "it is ready",
        ignoring=(httpx.TransportError,),
    )
    return address


def promtool_check_metrics(page: str) -> list[str]:
    """What `promtool check metrics` finds wrong with a page; nothing if it is clean."""
    result = promtool("check", "metrics", stdin=page)
    complaints = [line for line in result.stderr.splitlines() if line.strip()]
    if result.returncode != 0 and not complaints:
        complaints = [f"exit code {result.returncode}"]
    return complaints


def promtool(
    *arguments: str | Path, stdin: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run promtool; skips the test where it can't be had."""
    program = require_program("promtool")
    return subprocess.run(
        [str(program.path), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=program.full_env(),
    )


def require_program(name: str) -> Program:
    """A program of Debian's; skips the test where it can't be had."""
    try:
        return find_program(name)
    except Unavailable as error:
        pytest.skip(f"no {name}: {error}")
