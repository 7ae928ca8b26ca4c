"""A real Prometheus that scrapes over TLS with a password, as its own configuration names them."""

from __future__ import annotations

import sys
from pathlib import Path

import bcrypt
import httpx

from pgque_exporter.demo.cluster import free_port
from tests.support.certificates import Authority
from tests.support.database import Database
from tests.support.processes import Process
from tests.support.prometheus import run_prometheus

PASSWORD = "correct horse"


def test_prometheus_scrapes_over_tls_with_a_password(watched: Database, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server")
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10)).decode()
    web = tmp_path / "web.yaml"
    web.write_text(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
        f"basic_auth_users:\n  prometheus: {hashed}\n"
    )
    certificate, key = authority.issue("scraper")
    address, health = (f"127.0.0.1:{free_port()}" for _ in range(2))
    environment = {
        "PGQUE_DSN": watched.dsn(user="watcher"),
        "PGQUE_INTERVAL": "1s",
        "PGQUE_LISTEN": address,
        "PGQUE_HEALTH_LISTEN": health,
    }
    scrape = {
        "job_name": "test",
        "scheme": "https",
        "tls_config": {
            "ca_file": str(authority.certificate),
            "cert_file": str(certificate),
            "key_file": str(key),
        },
        "static_configs": [{"targets": [address]}],
    }
    password = {"basic_auth": {"username": "prometheus", "password": PASSWORD}}
    jobs = [{**scrape, **password}, {**scrape, "job_name": "without a password"}]
    command: list[str | Path] = [Path(sys.executable).with_name("pgque-exporter"), "run", "--web-config", web]
    service = Process(command, log=tmp_path / "service.log", env=environment, cwd=tmp_path)
    with service:
        service.wait_for(
            lambda: httpx.get(f"http://{health}/readyz", timeout=10).is_success,
            "the first poll is done",
            ignoring=(httpx.TransportError,),
        )
        with run_prometheus(folder=tmp_path, extra={"scrape_configs": jobs}) as prometheus:
            prometheus.wait_for('up{job="test"} == 1')
            prometheus.wait_for("pgque_queue_depth")
            prometheus.wait_for('up{job="without a password"} == 0')
            [refused] = [t for t in prometheus.targets() if t["labels"]["job"] == "without a password"]
            assert "401" in refused["lastError"]
        said = service.output()
    assert f"listening on https://{address}" in said
    assert PASSWORD not in said
