"""The tests' own Prometheus: scrapes a real page, and its answers can be trusted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.prometheus import promtool_check_metrics, run_prometheus

PAGE = """\
# HELP jobs_waiting Jobs that wait.
# TYPE jobs_waiting gauge
jobs_waiting{queue="a"} 3
jobs_waiting{queue="b\\"c"} 4
"""


@contextmanager
def serve(page: bytes) -> Iterator[str]:
    """Address of an HTTP server that answers every GET with `page`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_it_scrapes_pages_and_answers_queries(tmp_path: Path) -> None:
    with (
        serve(PAGE.encode()) as good,
        serve(b"{not a page") as bad,
        run_prometheus(good, bad, folder=tmp_path) as prometheus,
    ):
        samples = prometheus.wait_for("jobs_waiting")
        assert {(s.labels["queue"], s.value) for s in samples} == {("a", 3.0), ('b"c', 4.0)}
        assert {s.labels["instance"] for s in samples} == {good}
        assert prometheus.value("sum(jobs_waiting)") == 7
        assert prometheus.value("scalar(sum(jobs_waiting))") == 7
        assert prometheus.value("no_such_metric") is None

        prometheus.wait_for(f'up{{instance="{bad}"}}', lambda up: up and up[0].value == 0)
        errors = {target["labels"]["instance"]: target["lastError"] for target in prometheus.targets()}
        assert errors[good] == ""
        assert "not a valid start token" in errors[bad]

        with pytest.raises(AssertionError, match=r"no_such_metric.*\n.*last answer: \[\]"):
            prometheus.wait_for("no_such_metric", timeout=0.1)
    assert prometheus.process.returncode == 0


def test_promtool_judges_a_page() -> None:
    assert promtool_check_metrics(PAGE) == []
    assert promtool_check_metrics("jobs_waiting 1\n") == ["jobs_waiting no help text"]
    assert "parsing error" in promtool_check_metrics("{not a page")[0]
