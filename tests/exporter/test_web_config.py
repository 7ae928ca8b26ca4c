"""Files with TLS and users: what is read, what is refused, what changes while the service runs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from pgque_exporter.errors import UserError
from pgque_exporter.web_config import WatchedWebConfig, WebConfig, load
from tests.support.certificates import Authority

HASH = bcrypt.hashpw(b"hunter2", b"$2b$04$" + b"abcdefghijklmnopqrstuu").decode()
TOKEN = "0123456789abcdef"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    """Files that a web configuration may name."""
    fill(tmp_path, authority)
    return tmp_path


def fill(folder: Path, authority: Authority) -> None:
    authority.issue("server")
    authority.issue("other")
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "short").write_text("hunter2")
    (folder / "binary").write_bytes(b"\xff" * 100)
    (folder / "locked.key").write_bytes(locked_key())


def locked_key() -> bytes:
    """A key that asks for a password."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2"))


def write(folder: Path, text: str) -> Path:
    path = folder / "web.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str) -> WebConfig:
    return load(write(folder, text), {})


def test_a_full_file(folder: Path) -> None:
    config = read(
        folder,
        f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
        "  min_version: TLS13\n"
        f"basic_auth_users:\n  prometheus: {HASH}\nbearer_token_files: [token]\n",
    )
    assert config.tls is not None
    assert (config.tls.verify_mode, config.tls.minimum_version) == (
        ssl.CERT_REQUIRED,
        ssl.TLSVersion.TLSv1_3,
    )
    assert config.users == {"prometheus": HASH.encode()}
    assert (len(config.tokens), config.asks) == (1, True)
    assert HASH not in repr(config)


def test_an_empty_file_asks_for_nothing(folder: Path) -> None:
    config = read(folder, "# nothing yet\n")
    assert (config.tls, config.asks) == (None, False)


def test_old_versions_of_tls_are_off(folder: Path) -> None:
    config = read(folder, TLS)
    assert config.tls is not None
    assert config.tls.minimum_version is ssl.TLSVersion.TLSv1_2
    assert config.tls.verify_mode is ssl.CERT_NONE


# One mistake each: the text, the line to be named, and what the message says.
MISTAKES = {
    "unknown key": ("basic_auth_user: {}\n", 1, "unknown key 'basic_auth_user'. Did you mean"),
    "unknown key of tls": (TLS + "  ciphers: x\n", 4, "unknown key 'ciphers'. Known here: cert_file"),
    "not a mapping": ("- 1\n", 1, "the configuration must hold `key: value` lines"),
    "no yaml": ("tls_server_config: [\n", 2, "not valid YAML"),
    "key twice": (f"{TLS}{TLS}", 4, "'tls_server_config' stands here a second time"),
    "no certificate": ("tls_server_config:\n  key_file: server.key\n", 1, "cert_file is missing"),
    "no key": ("tls_server_config:\n  cert_file: server.crt\n", 1, "key_file is missing"),
    "certificate not there": (TLS.replace("server.crt", "no.crt"), 2, "no.crt: No such file"),
    "key not there": (TLS.replace("server.key", "no.key"), 3, "no.key: No such file"),
    "key of another": (TLS.replace("server.key", "other.key"), 2, "are no certificate and its key"),
    "key with a password": (TLS.replace("server.key", "locked.key"), 2, "the key without a password"),
    "certificate no pem": (TLS.replace("server.crt", "binary"), 2, "are no certificate and its key"),
    "old version": (TLS + "  min_version: TLS10\n", 4, "min_version must be 'TLS12' or 'TLS13'"),
    "versions the wrong way": (
        TLS + "  min_version: TLS13\n  max_version: TLS12\n",
        5,
        "max_version is below min_version",
    ),
    "client certificates unverified": (
        TLS + "  client_auth_type: RequireAnyClientCert\n",
        4,
        "client_auth_type must be 'NoClientCert', 'VerifyClientCertIfGiven' or 'RequireAndVerifyClientCert'",
    ),
    "authorities missing": (
        TLS + "  client_auth_type: RequireAndVerifyClientCert\n",
        4,
        "client_auth_type and client_ca_file belong together",
    ),
    "authorities unused": (TLS + "  client_ca_file: ca.crt\n", 4, "client_auth_type and client_ca_file"),
    "authorities not there": (
        TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: no.crt\n",
        5,
        "no.crt: No such file",
    ),
    "authorities no pem": (
        TLS + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: token\n",
        5,
        "token holds no certificate",
    ),
    "password in plain": ("basic_auth_users:\n  a: hunter2\n", 2, "the password of 'a' is no bcrypt hash"),
    "password no text": ("basic_auth_users:\n  a: 5\n", 2, "a must be text"),
    "users no mapping": ("basic_auth_users: [a]\n", 1, "basic_auth_users must be a mapping"),
    "hash too dear": (
        f"basic_auth_users:\n  a: {HASH.replace('$04$', '$15$')}\n",
        2,
        "the bcrypt cost of 'a' is not between 4 and 14",
    ),
    "user with a colon": (f"basic_auth_users:\n  'a:b': {HASH}\n", 2, "without a colon"),
    "user without a name": (f"basic_auth_users:\n  '': {HASH}\n", 2, "a user's name must be printable"),
    "token not there": ("bearer_token_files:\n  - token\n  - nowhere\n", 3, "nowhere: No such file"),
    "token too short": ("bearer_token_files: [short]\n", 1, "short holds no bearer token"),
    "token no text": ("bearer_token_files: [binary]\n", 1, "binary holds no bearer token"),
    "tokens no list": ("bearer_token_files: token\n", 1, "bearer_token_files must be a list"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named_with_file_and_line(mistake: str, folder: Path) -> None:
    text, line, message = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        read(folder, text)
    error = str(caught.value).replace(f"{folder}/", "")
    assert error.startswith(f"web.yaml:{line}: ")
    assert message in error
    assert "\n" not in error
    assert "hunter2" not in error


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.yaml: can't read the web configuration: No such file"):
        load(tmp_path / "no.yaml", {})
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load(binary, {})


# --- changes -------------------------------------------------------------------------------------


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "pgque_exporter.web_config"):
        yield caplog


def replace_file(path: Path, content: bytes) -> None:
    """As careful programs do it, and the mounts of secrets."""
    fresh = path.with_name("fresh")
    fresh.write_bytes(content)
    fresh.replace(path)


def test_what_has_not_changed_is_not_read_again(folder: Path) -> None:
    watched = WatchedWebConfig(write(folder, TLS))
    assert watched.current() is watched.current()


@pytest.mark.parametrize("name", ["web.yaml", "token", "server.crt"])
def test_a_change_of_any_file_is_seen(name: str, folder: Path, authority: Authority) -> None:
    watched = WatchedWebConfig(write(folder, f"{TLS}bearer_token_files: [token]\n"))
    before = watched.current()
    if name == "web.yaml":
        write(folder, f"{TLS}bearer_token_files: [token]\nbasic_auth_users:\n  a: {HASH}\n")
    elif name == "token":
        replace_file(folder / name, b"fedcba9876543210")
    else:
        authority.issue("server")
    after = watched.current()
    assert after is not before
    assert (after.users != before.users, after.tokens != before.tokens) == (
        name == "web.yaml",
        name == "token",
    )


def test_a_certificate_whose_key_is_not_there_yet_waits_for_it(
    folder: Path, authority: Authority, messages: pytest.LogCaptureFixture
) -> None:
    watched = WatchedWebConfig(write(folder, TLS))
    before = watched.current()
    certificate, key = authority.issue("renewed")
    certificate.replace(folder / "server.crt")
    assert watched.current() is before
    assert watched.current() is before
    assert messages.text.count("the changed web configuration is not used") == 1
    key.replace(folder / "server.key")
    assert watched.current() is not before
    assert "read again" in messages.text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it turns TLS and authentication off"),
        (TLS, "it turns authentication off"),
        (f"basic_auth_users:\n  a: {HASH}\n", "it turns TLS off"),
        (f"{TLS}basic_auth_users:\n  a: hunter2\n", "no bcrypt hash"),
        (None, "No such file"),
    ],
)
def test_a_change_that_is_wrong_or_opens_the_door_is_not_used(
    text: str | None, what: str, folder: Path, messages: pytest.LogCaptureFixture
) -> None:
    path = write(folder, f"{TLS}basic_auth_users:\n  a: {HASH}\n")
    watched = WatchedWebConfig(path)
    told: list[bool] = []
    watched.watch(told.append)
    before = watched.current()
    if text is None:
        path.unlink()
    else:
        write(folder, text)
    assert watched.current() is before
    assert what in messages.text
    assert "hunter2" not in messages.text
    write(folder, f"{TLS}basic_auth_users:\n  b: {HASH}\n")
    assert told == [True, False]
    assert set(watched.current().users) == {"b"}
    assert told == [True, False, True]


def test_a_link_that_leads_elsewhere_is_a_change(folder: Path) -> None:
    """Kubernetes changes the files of a secret like this."""
    for number in (1, 2):
        (folder / f"v{number}").mkdir()
        (folder / f"v{number}" / "token").write_text(f"{number}" * 20)
    (folder / "now").symlink_to("v1")
    watched = WatchedWebConfig(write(folder, "bearer_token_files: [now/token]\n"))
    before = watched.current()
    (folder / "next").symlink_to("v2")
    os.replace(folder / "next", folder / "now")
    assert watched.current().tokens != before.tokens
