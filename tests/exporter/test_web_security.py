"""Who may see the pages of a running service, and what those can do who may not."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import bcrypt
import httpx
import pytest

from pgque_exporter.access import Access, Verdict
from pgque_exporter.config import Config, Listen
from pgque_exporter.demo.cluster import free_port
from pgque_exporter.server import Bounds
from pgque_exporter.web_config import WatchedWebConfig, WebConfig
from tests.exporter.harness import Running, ToyPack, config, running, target
from tests.support.certificates import Authority
from tests.support.database import Database

pytestmark = pytest.mark.servers("pg18")

PASSWORD = "correct horse"
TOKEN = "0123456789abcdef-token"
# The least cost: what is tested is who passes, not how long it takes.
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4))
USERS = f"basic_auth_users:\n  prometheus: {HASH.decode()}\nbearer_token_files: [token]\n"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
ENDPOINTS = ("/", "/metrics", "/livez", "/readyz", "/healthz", "/api/v1/status")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("server")
    (tmp_path / "token").write_text(TOKEN)
    return made


def secured(database: Database, folder: Path, text: str) -> Config:
    path = folder / "web.yaml"
    path.write_text(text, encoding="utf-8")
    return replace(config(target(database.dsn())), web_config=path)


def client(service: Running, context: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(base_url=service.url, verify=context, timeout=20)


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


REFUSED = [
    None,
    "",
    "Basic",
    "Basic !",
    "Basic " + base64.b64encode(b"prometheus").decode(),
    "Basic " + base64.b64encode(b"\xff:\xff").decode(),
    basic("prometheus", "wrong"),
    basic("prometheus", ""),
    basic("prometheus", PASSWORD + "x"),
    basic("prometheus", PASSWORD + "\0"),
    basic("prometheus", PASSWORD.ljust(100)),
    basic("prometheus", HASH.decode()),
    basic("Prometheus", PASSWORD),
    basic("", PASSWORD),
    basic("nobody", PASSWORD),
    "Bearer",
    "Bearer wrong",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    f"Basic {TOKEN}",
    f"Bearer {basic('prometheus', PASSWORD)}",
    TOKEN,
    "Digest username=prometheus",
]


def test_tls_and_users(
    database: Database, toy: ToyPack, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        running(secured(database, tmp_path, TLS + USERS)) as service,
        client(service, authority.client()) as http,
    ):
        assert service.url.startswith("https://")
        for path in (*ENDPOINTS, "/nowhere", "/docs"):
            answer = http.get(path)
            assert answer.status_code == 401
            assert answer.headers.get_list("WWW-Authenticate") == [
                'Bearer realm="pgque-exporter"',
                'Basic realm="pgque-exporter", charset="UTF-8"',
            ]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.text == "Unauthorized.\n"
        for given in REFUSED:
            headers = {} if given is None else {"Authorization": given}
            assert http.get("/metrics", headers=headers).status_code == 401, given
        right = basic("prometheus", PASSWORD)
        for given in (right, right.replace("Basic", "bAsic"), f"Bearer {TOKEN}", f"bearer {TOKEN}"):
            for path in ENDPOINTS:
                assert http.get(path, headers={"Authorization": given}).status_code in (200, 503)
            assert http.get("/nowhere", headers={"Authorization": given}).status_code == 404
        two = [("Authorization", right), ("Authorization", right)]
        assert http.get("/metrics", headers=two).status_code == 401
        for form in ("/metrics", "/api/v1/status", "/"):
            page = http.get(form, headers={"Authorization": right}).text
            for secret in (PASSWORD, TOKEN, HASH.decode()):
                assert secret not in page
    for secret in (PASSWORD, TOKEN, HASH.decode(), right.split()[1]):
        assert secret not in caplog.text


def test_without_users_nobody_is_asked(
    database: Database, toy: ToyPack, authority: Authority, tmp_path: Path
) -> None:
    with (
        running(secured(database, tmp_path, TLS)) as service,
        client(service, authority.client()) as http,
    ):
        assert http.get("/livez").status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{service.url}/livez", timeout=20)
        with socket.create_connection(("127.0.0.1", httpx.URL(service.url).port or 0), timeout=20) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/" not in plain.makefile("rb").read()


def test_versions_of_tls_below_the_least_are_refused(
    database: Database, toy: ToyPack, authority: Authority, tmp_path: Path
) -> None:
    settings = secured(database, tmp_path, f"{TLS}  min_version: TLS13\n")
    with running(settings) as service:
        context = authority.client()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with client(service, context) as http, pytest.raises(httpx.ConnectError):
            http.get("/livez")
        with client(service, authority.client()) as http:
            assert http.get("/livez").status_code == 200


def test_clients_with_certificates(
    database: Database, toy: ToyPack, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    stranger = Authority(tmp_path / "elsewhere").issue("stranger")
    text = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
    with running(secured(database, tmp_path, text)) as service:
        with client(service, authority.client(authority.issue("friend"))) as http:
            assert http.get("/metrics").status_code == 200
        for context in (authority.client(), authority.client(stranger)):
            # With TLS 1.3 a client learns only when it reads that its certificate wasn't taken.
            with client(service, context) as http, pytest.raises(httpx.TransportError):
                http.get("/metrics")


def test_a_renewed_certificate_and_a_changed_password_need_no_restart(
    database: Database, toy: ToyPack, authority: Authority, tmp_path: Path
) -> None:
    with running(secured(database, tmp_path, TLS + USERS)) as service:
        address = ("127.0.0.1", httpx.URL(service.url).port or 0)

        def certificate() -> bytes | None:
            with (
                socket.create_connection(address, timeout=20) as sock,
                authority.client().wrap_socket(sock, server_hostname="localhost") as tls,
            ):
                return tls.getpeercert(binary_form=True)

        with client(service, authority.client()) as http:
            right = {"Authorization": basic("prometheus", PASSWORD)}
            assert http.get("/metrics", headers=right).status_code == 200
            before = certificate()
            assert certificate() == before
            authority.issue("server")
            assert certificate() != before

            changed = bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()
            (tmp_path / "web.yaml").write_text(f"{TLS}basic_auth_users:\n  prometheus: {changed}\n")
            assert http.get("/metrics", headers=right).status_code == 401
            right = {"Authorization": basic("prometheus", "new")}
            assert http.get("/metrics", headers=right).status_code == 200
            assert http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401


@pytest.mark.parametrize("framing", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_body_is_refused_before_it_is_there(database: Database, toy: ToyPack, framing: str) -> None:
    with running(config(target(database.dsn()))) as service:
        address = ("127.0.0.1", httpx.URL(service.url).port or 0)
        for method in ("GET", "POST"):
            with socket.create_connection(address, timeout=20) as sock:
                sock.sendall(f"{method} /metrics HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
                answer = sock.makefile("rb").read()
                assert answer.startswith(b"HTTP/1.1 413 ")
                assert b"nosniff" in answer


@pytest.fixture
def with_health(database: Database, toy: ToyPack, authority: Authority, tmp_path: Path) -> Iterator[str]:
    """URL of the health port of a service whose main port asks for a password."""
    toy.add_health("secret queue", "lag", "critical", "nobody reads")
    health = Listen("127.0.0.1", free_port())
    with running(replace(secured(database, tmp_path, USERS), health_listen=health)) as service:
        assert httpx.get(f"{service.url}/healthz", timeout=20).status_code == 401
        yield f"http://127.0.0.1:{health.port}"


def test_health_on_its_own_port_tells_the_state_and_no_names(with_health: str) -> None:
    with httpx.Client(base_url=with_health, timeout=20) as http:
        assert (http.get("/livez").status_code, http.get("/livez").json()) == (200, {"status": "ok"})
        while http.get("/readyz").status_code != 200:
            assert http.get("/readyz").json() in ({"status": "unknown"}, {"status": "ok"})
        health = http.get("/healthz")
        assert (health.status_code, health.json()) == (503, {"status": "critical"})
        for path in ("/", "/metrics", "/api/v1/status", "/docs"):
            assert http.get(path).status_code == 404


def test_health_answers_while_the_main_port_is_held_by_half_open_requests(
    database: Database, toy: ToyPack
) -> None:
    health = Listen("127.0.0.1", free_port())
    settings = replace(config(target(database.dsn())), health_listen=health)
    with running(settings) as service, ExitStack() as stack:
        address = ("127.0.0.1", httpx.URL(service.url).port or 0)
        for number in range(Bounds.connections + 50):
            sock = stack.enter_context(socket.create_connection(address, timeout=20))
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"[: number % 30])
        for path in ("/livez", "/readyz", "/healthz"):
            assert httpx.get(f"http://127.0.0.1:{health.port}{path}", timeout=20).status_code == 200
        # And so does the main port: who is in the middle of nothing makes room.
        assert service.get("/metrics").status == 200


# --- the cost of passwords -----------------------------------------------------------------------


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Passwords that bcrypt has compared, which it goes on to do."""
    seen: list[bytes] = []
    compare = bcrypt.checkpw

    def count(password: bytes, hashed: bytes) -> bool:
        seen.append(password)
        return compare(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", count)
    return seen


def access() -> Access:
    web = WebConfig(users={"prometheus": HASH})
    return Access(lambda: web)


def test_a_right_password_is_compared_once(compared: list[bytes]) -> None:
    async def many() -> set[Verdict]:
        judge = access()
        return {await judge.judge(basic("prometheus", PASSWORD)) for _ in range(50)}

    assert asyncio.run(many()) == {Verdict.ALLOWED}
    assert len(compared) == 1


def test_every_wrong_one_costs_the_same_whoever_it_is_of(compared: list[bytes]) -> None:
    async def both() -> list[Verdict]:
        judge = access()
        given = [basic("prometheus", "wrong"), basic("nobody", PASSWORD), basic("prometheus", "x" * 100)]
        return [await judge.judge(one) for one in given]

    assert asyncio.run(both()) == [Verdict.REFUSED] * 3
    assert len(compared) == 3


def test_a_flood_of_passwords_waits_or_is_turned_away(compared: list[bytes]) -> None:
    async def flood() -> list[Verdict]:
        judge = access()
        assert await judge.judge(basic("prometheus", PASSWORD)) is Verdict.ALLOWED
        wrong = [judge.judge(basic("prometheus", f"wrong {number}")) for number in range(100)]
        known = [judge.judge(basic("prometheus", PASSWORD))]
        return await asyncio.gather(*wrong, *known)

    *wrong, known = asyncio.run(flood())
    assert known is Verdict.ALLOWED, "who is known doesn't wait"
    assert (wrong.count(Verdict.REFUSED), wrong.count(Verdict.BUSY)) == (8, 92)
    assert len(compared) == 9


def test_a_user_who_is_gone_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(f"basic_auth_users:\n  a: {HASH.decode()}\n  b: {HASH.decode()}\n")
    watched = WatchedWebConfig(path)
    judge = Access(watched.current)
    assert asyncio.run(judge.judge(basic("a", PASSWORD))) is Verdict.ALLOWED
    path.write_text(f"basic_auth_users:\n  b: {HASH.decode()}\n")
    assert asyncio.run(judge.judge(basic("a", PASSWORD))) is Verdict.REFUSED
