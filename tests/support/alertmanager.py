"""A real Alertmanager, and a receiver of its notifications."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.processes import Process
from tests.support.prometheus import ready_address, require_program

Labels = Mapping[str, str]


class Alertmanager:
    """A running server's HTTP API."""

    def __init__(self, address: str, process: Process) -> None:
        self.address = address  # host:port
        self.process = process

    def post(self, alerts: Sequence[Labels]) -> None:
        """Tell it of alerts that fire, by their labels."""
        body = [{"labels": labels} for labels in alerts]
        httpx.post(f"http://{self.address}/api/v2/alerts", json=body, timeout=10).raise_for_status()

    def alerts(self) -> list[dict[str, Any]]:
        """What it knows: labels, and status with `state` active or suppressed and `inhibitedBy`."""
        response = httpx.get(f"http://{self.address}/api/v2/alerts", timeout=10)
        found: list[dict[str, Any]] = response.raise_for_status().json()
        return found


@contextmanager
def run_alertmanager(config: Mapping[str, Any], *, folder: Path) -> Iterator[Alertmanager]:
    """An Alertmanager without peers, with its data in `folder`."""
    program = require_program("prometheus-alertmanager")
    folder.mkdir(exist_ok=True)
    config_file = folder / "alertmanager.yml"
    config_file.write_text(yaml.safe_dump(dict(config)), "utf-8")
    process = Process(
        [
            program.path,
            f"--config.file={config_file}",
            f"--storage.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",  # the port that it got stands in its log
            "--cluster.listen-address=",
        ],
        log=folder / "alertmanager.log",
        env=program.env,
        cwd=program.path.parents[2],  # it finds its templates from there
    )
    with process:
        yield Alertmanager(ready_address(process), process)


def amtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run amtool; skips the test where it can't be had."""
    program = require_program("amtool")
    return subprocess.run(
        [str(program.path), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=program.full_env(),
    )


@dataclass(frozen=True)
class Notified:
    """An alert of a notification: where it went, when it came (monotonic seconds), and what it says."""

    path: str
    time: float
    status: str  # firing or resolved
    labels: Labels
    annotations: Labels

    @property
    def name(self) -> str:
        return self.labels["alertname"]


class Receiver:
    """Takes the notifications of an Alertmanager by webhook."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.notified: list[Notified] = []

    def take(self, path: str, body: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self.notified += [
            Notified(path, now, alert["status"], alert["labels"], alert["annotations"])
            for alert in body["alerts"]
        ]

    def first(self, matches: Callable[[Notified], object]) -> Notified | None:
        """The first that matches, if it has come."""
        return next((one for one in list(self.notified) if matches(one)), None)


@contextmanager
def run_receiver() -> Iterator[Receiver]:
    """A receiver on loopback, at a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            receiver.take(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
