"""The HTTP API against its description, and requests that nobody would think of against both."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from tests.exporter.harness import Running, ToyPack, config, running, target
from tests.support.database import Database, wait_until
from tests.support.repository import ROOT

pytestmark = pytest.mark.servers("pg18")

DESCRIPTION = ROOT / "docs/openapi.yaml"
PASSWORD = "correct horse"
REQUESTS = 25  # of a kind, to each endpoint


@pytest.fixture
def service(database: Database, toy: ToyPack, tmp_path: Path) -> Iterator[Running]:
    """One database with a bit of everything, and one that isn't there."""
    toy.add("pgque.queue.depth", 3, queue="orders")
    toy.add("pgque.consumer.lag_seconds", 3, queue="orders", consumer="c")
    toy.add_health("orders", "lag", "warning", "late")
    web = tmp_path / "web.yaml"
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    web.write_text(f"basic_auth_users:\n  prometheus: {hashed}\n")
    targets = target(database.dsn()), target("host=127.0.0.1 port=1", "gone")
    with running(replace(config(*targets), web_config=web)) as running_service:
        yield running_service


def schemathesis(
    url: str, description: Path, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [
        Path(sys.executable).with_name("schemathesis"), "run", description, "--url", url, "--no-color",
        "--auth", f"prometheus:{PASSWORD}", "--max-examples", str(REQUESTS), "--generation-database", "none",
        # A service whose database is gone says 503, which is no mistake of the server.
        "--exclude-checks", "not_a_server_error", *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_every_answer_is_as_described(service: Running, tmp_path: Path) -> None:
    wait_until(lambda: b'"queues":[{' in authorised(service), what="both polled")
    result = schemathesis(service.url, DESCRIPTION, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Tested: 6" in result.stdout


def test_a_description_that_is_wrong_is_found_out(service: Running, tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    wait_until(lambda: b'"queues":[{' in authorised(service), what="both polled")
    wrong: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text("utf-8"))
    wrong["components"]["schemas"]["Queue"]["properties"]["name"] = {"type": "integer"}
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(wrong))
    result = schemathesis(service.url, path, tmp_path, "--include-path", "/api/v1/status", "--no-shrink")
    assert result.returncode == 1
    assert "Response violates schema" in result.stdout


def authorised(service: Running) -> bytes:
    given = base64.b64encode(f"prometheus:{PASSWORD}".encode()).decode()
    return service.get("/api/v1/status", Authorization=f"Basic {given}").body


def test_the_description_has_the_endpoints_of_the_readme() -> None:
    described: Mapping[str, Any] = yaml.safe_load(DESCRIPTION.read_text("utf-8"))["paths"]
    table = (ROOT / "README.md").read_text("utf-8").partition("| path | answer |")[2].partition("\n\n")[0]
    named = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(described) == sorted(named)
