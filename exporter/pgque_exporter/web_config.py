"""The web configuration: TLS and who may ask, in a file of the shape that Prometheus' own programs read.

    tls_server_config:
      cert_file: server.crt
      key_file: server.key
      client_auth_type: RequireAndVerifyClientCert
      client_ca_file: clients.crt
      min_version: TLS13
    basic_auth_users:
      prometheus: $2y$10$...          # bcrypt
    bearer_token_files:               # ours
      - token

Names of files are relative to this one. All of them are read again when they change.
"""

from __future__ import annotations

import hashlib
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from pgque_exporter import yaml_lines
from pgque_exporter.config_values import Models, RawModel, Where, first_error
from pgque_exporter.errors import UserError

log = logging.getLogger(__name__)

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_LEAST_COST, _HIGHEST_COST = 4, 14  # at 14 a comparison takes a second of a processor's time
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")  # what the Authorization header can carry


@dataclass(frozen=True)
class WebConfig:
    """Who may ask, and how. `users` are bcrypt hashes by name, `tokens` SHA-256 digests."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    tokens: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def asks(self) -> bool:
        """Whether a client has to say who it is."""
        return bool(self.users or self.tokens)


class _RawTls(RawModel):
    cert_file: str
    key_file: str
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    client_ca_file: str | None = None
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] = "TLS13"


class _RawWeb(RawModel):
    tls_server_config: _RawTls | None = None
    basic_auth_users: dict[str, str] = Field(default={})
    bearer_token_files: list[str] = Field(default=[])


_Stat = tuple[int, ...] | None
_Seen = dict[Path, _Stat]  # files that make a configuration, as they were just before they were read
_MODELS: Models = {(): _RawWeb, ("tls_server_config",): _RawTls}


def load(path: Path, seen: _Seen) -> WebConfig:
    """Read the file and those that it names, and note them in `seen`.

    Whatever is wrong is a UserError with file and line.
    """
    seen[path] = _stat(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(
            f"can't read the web configuration: {reason}", where=str(path), hint="check `web_config`"
        ) from None
    document = yaml_lines.parse(text, str(path))
    try:
        raw = _RawWeb.model_validate({} if document.data is None else document.data)
    except ValidationError as error:
        raise first_error(error, document.where, _MODELS) from None
    files = _Files(path.parent, document.where, seen)
    tls = _tls(raw.tls_server_config, files) if raw.tls_server_config is not None else None
    users = {name: _user(name, given, document.where) for name, given in raw.basic_auth_users.items()}
    tokens = tuple(_token(name, index, files) for index, name in enumerate(raw.bearer_token_files))
    return WebConfig(tls, users, tokens)


class _Files:
    """Files that a web configuration names."""

    def __init__(self, folder: Path, where: Where, seen: _Seen) -> None:
        self.where = where
        self._folder = folder
        self._seen = seen

    def read(self, name: str, at: yaml_lines.Path) -> tuple[Path, bytes]:
        """The path and content of a file, which from now on belongs to the configuration."""
        path = self._folder / name
        self._seen[path] = _stat(path)
        try:
            return path, path.read_bytes()
        except OSError as error:
            raise UserError(
                f"can't read {path}: {error.strerror}",
                where=self.where(at),
                hint="check the path and its permissions",
            ) from None


def _tls(raw: _RawTls, files: _Files) -> ssl.SSLContext:
    section = ("tls_server_config",)
    if _VERSIONS[raw.min_version] > _VERSIONS[raw.max_version]:
        what = "max_version is below min_version"
        raise UserError(what, where=files.where((*section, "max_version")), hint="leave it out")
    verifies = raw.client_auth_type != "NoClientCert"
    if verifies != (raw.client_ca_file is not None):
        raise UserError(
            "client_auth_type and client_ca_file belong together",
            where=files.where((*section, "client_auth_type" if verifies else "client_ca_file")),
            hint="give both, or neither where clients need no certificate",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[raw.min_version]
    context.maximum_version = _VERSIONS[raw.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    certificate, _ = files.read(raw.cert_file, (*section, "cert_file"))
    key, _ = files.read(raw.key_file, (*section, "key_file"))
    try:
        # A password would be asked for on the terminal, and the service wait for it.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise UserError(
            "cert_file and key_file are no certificate and its key",
            where=files.where((*section, "cert_file")),
            hint="both must be in PEM form, the key without a password",
        ) from None
    if raw.client_ca_file is not None:
        at = (*section, "client_ca_file")
        authorities, _ = files.read(raw.client_ca_file, at)
        try:
            context.load_verify_locations(authorities)
        except ssl.SSLError:
            what = f"{authorities} holds no certificate"
            raise UserError(what, where=files.where(at), hint="name a file in PEM form") from None
        context.verify_mode = _CLIENT_AUTH[raw.client_auth_type]
    return context


def _user(name: str, given: str, where: Where) -> bytes:
    at = where(("basic_auth_users", name))
    if not name or ":" in name or not name.isprintable():
        raise UserError("a user's name must be printable, without a colon", where=at)
    match = _BCRYPT.fullmatch(given)
    if match is None:
        hint = "make one with `htpasswd -nBC 10 \"\"`, or use the one that Prometheus has"
        raise UserError(f"the password of {name!r} is no bcrypt hash", where=at, hint=hint)
    if not _LEAST_COST <= int(match[1]) <= _HIGHEST_COST:
        what = f"the bcrypt cost of {name!r} is not between {_LEAST_COST} and {_HIGHEST_COST}"
        raise UserError(what, where=at, hint="10 is usual; a higher one makes each first request wait")
    return given.encode()


def _token(name: str, index: int, files: _Files) -> bytes:
    at = ("bearer_token_files", index)
    path, content = files.read(name, at)
    token = content.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        raise UserError(
            f"{path} holds no bearer token",
            where=files.where(at),
            hint="write at least 16 letters and digits, such as `openssl rand -hex 32` makes",
        )
    return hashlib.sha256(token.encode()).digest()


# --- changes -------------------------------------------------------------------------------------


class WatchedWebConfig:
    """The web configuration as its files are now.

    A change that can't be read leaves the old one in force, with one line in the log. So does one that
    would turn TLS or authentication off: a file that is half written looks like that, too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: _Seen = {}
        self._config = load(path, self._seen)
        self._tell: Callable[[bool], None] = lambda _: None

    def watch(self, tell: Callable[[bool], None]) -> None:
        """Have `tell` called, now and with each change: True when the files are in use as they are."""
        self._tell = tell
        tell(True)

    def current(self) -> WebConfig:
        """The configuration; files are looked at, and read only if one has changed."""
        if any(_stat(path) != stat for path, stat in self._seen.items()):
            self._reload()
        return self._config

    def tls(self) -> ssl.SSLContext | None:
        """What a new connection is to be encrypted by."""
        return self.current().tls

    def _reload(self) -> None:
        self._seen = {}
        try:
            config = load(self._path, self._seen)
            self._refuse_weaker(config)
        except UserError as error:
            log.warning("the changed web configuration is not used: %s", error)
            self._tell(False)
        else:
            self._config = config
            log.info("%s: web configuration read again", self._path)
            self._tell(True)

    def _refuse_weaker(self, config: WebConfig) -> None:
        off = []
        if self._config.tls is not None and config.tls is None:
            off.append("TLS")
        if self._config.asks and not config.asks:
            off.append("authentication")
        if off:
            what = f"it turns {' and '.join(off)} off"
            raise UserError(what, where=str(self._path), hint="restart the service if that is meant")


def _stat(path: Path) -> _Stat:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
