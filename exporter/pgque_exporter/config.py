"""Configuration: a YAML file and those it names, or the environment alone for one database.

A file is the whole truth: with one, no variable but libpq's own (`PGHOST`, `PGUSER`, ...) counts, and
`PGQUE_SHARD`, which tells apart the services that share a file.
Pydantic checks the raw input here; what leaves this module is frozen dataclasses.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from pgque_exporter import yaml_lines
from pgque_exporter.config_archive import ArchiveConfig, RawArchive, build_archive
from pgque_exporter.config_leader import LeaderConfig, RawLeader, build_leader
from pgque_exporter.config_limits import DEFAULT_LIMITS, Limits, RawLimits
from pgque_exporter.config_targets import (
    DEFAULT_INTERVAL,
    MODELS,
    Defaults,
    DiscoveryConfig,
    Entry,
    RawTarget,
    TargetConfig,
    build,
    entries,
    matching,
    read_files,
)
from pgque_exporter.config_values import (
    Duration,
    Models,
    RawModel,
    Where,
    first_error,
    parse_duration,
    quote,
    readable,
)
from pgque_exporter.errors import UserError
from pgque_exporter.sharding import Shard

__all__ = [
    "ENVIRONMENT",
    "ArchiveConfig",
    "Config",
    "DiscoveryConfig",
    "Files",
    "LeaderConfig",
    "Limits",
    "Listen",
    "OtlpConfig",
    "TargetConfig",
    "load_environment",
    "load_file",
    "misspelt",
    "parse_duration",
]

DEFAULT_LISTEN = "127.0.0.1:9718"
DEFAULT_OTLP_TIMEOUT = 10.0
DEFAULT_QUEUE_POINTS = 200_000


@dataclass(frozen=True)
class Listen:
    """Where the HTTP server listens; port 0 is any free one."""

    host: str
    port: int


@dataclass(frozen=True)
class OtlpConfig:
    """Where metrics are pushed. `endpoint` is a base URL; its scheme decides about TLS."""

    endpoint: str
    protocol: Literal["grpc", "http"]
    headers: Mapping[str, str] = field(repr=False)
    timeout: float = DEFAULT_OTLP_TIMEOUT
    ca_file: Path | None = None
    temporality: Literal["cumulative", "delta"] = "cumulative"
    queue_points: int = DEFAULT_QUEUE_POINTS
    client: tuple[Path, Path] | None = None  # certificate and key that the service shows


@dataclass(frozen=True)
class Files:
    """Where a configuration was read from: its own file, and patterns of the files with targets."""

    main: Path
    patterns: tuple[str, ...] = ()

    def all(self) -> list[Path]:
        """The files as they are there now."""
        return [self.main, *matching(self.patterns)]


@dataclass(frozen=True)
class Config:
    """Everything that a run needs to know. `interval` in seconds, the default of the targets."""

    listen: Listen
    interval: float
    targets: tuple[TargetConfig, ...]
    otlp: OtlpConfig | None
    log_level: str
    discoveries: tuple[DiscoveryConfig, ...] = ()
    files: Files | None = None
    shard: Shard | None = None
    leader: LeaderConfig | None = None
    limits: Limits = DEFAULT_LIMITS
    health_listen: Listen | None = None
    web_config: Path | None = None
    archive: ArchiveConfig | None = None


def load_file(path: str | Path) -> Config:
    """Read a YAML file; whatever is wrong with it is a UserError that names file and line."""
    document = yaml_lines.read(Path(path), "the configuration")
    data = {} if document.data is None else document.data
    try:
        raw = _RawConfig.model_validate(data)
    except ValidationError as error:
        raise first_error(error, document.where, _MODELS) from None
    # A pattern is meant from where it is written, however the service was started.
    folder = Path(path).absolute().parent
    files = Files(Path(path), tuple(str(folder / pattern) for pattern in raw.target_files))
    written = [*entries(raw.targets or (), document.where, "targets"), *read_files(matching(files.patterns))]
    return _build(raw, document.where, written, files)


def load_environment(environ: Mapping[str, str], *, dsn: str | None = None) -> Config:
    """One database from environment variables; `dsn` stands in for PGQUE_DSN."""
    if dsn == "":
        raise UserError("the dsn is empty", where="--dsn", hint="write postgresql://user@host/dbname")
    source = "PGQUE_DSN" if dsn is None else "--dsn"
    dsn = dsn or environ.get("PGQUE_DSN")
    if not dsn and not any(environ.get(key) for key in _LIBPQ_VARIABLES):
        raise UserError(
            "no database is given",
            hint=f"set PGQUE_DSN (or {', '.join(_LIBPQ_VARIABLES)}), or pass --dsn or --config",
        )
    data: dict[str, Any] = {}
    target: dict[str, Any] = {"dsn": dsn or ""}
    otlp: dict[str, Any] = {}
    origin: dict[tuple[str | int, ...], str] = {("targets", 0, "dsn"): source}
    for variable, section, key in _VARIABLES:
        # An empty variable counts as unset, as OpenTelemetry's specification wants it.
        if value := environ.get(variable):
            {"": data, "target": target, "otlp": otlp}[section][key] = _from_text(variable, value)
            origin[_ORIGINS[section] + (key,)] = variable
    data["targets"] = [target]
    if "endpoint" in otlp:
        data["otlp"] = otlp

    def where(path: yaml_lines.Path) -> str:
        depth = 3 if path and path[0] == "targets" else 2
        return origin.get(tuple(path[:depth]), "environment")

    try:
        raw = _RawConfig.model_validate(data)
    except ValidationError as error:
        raise first_error(error, where, _MODELS) from None
    return _build(raw, where, list(entries(raw.targets or (), where, "targets")), None)


_LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")  # those that name a database
_VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("PGQUE_PASSWORD_FILE", "target", "password_file"),
    ("PGQUE_LISTEN", "", "listen"),
    ("PGQUE_HEALTH_LISTEN", "", "health_listen"),
    ("PGQUE_WEB_CONFIG", "", "web_config"),
    ("PGQUE_INTERVAL", "", "interval"),
    ("PGQUE_TIMEOUT", "", "timeout"),
    ("PGQUE_STALE_AFTER", "", "stale_after"),
    ("PGQUE_LOG_LEVEL", "", "log_level"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp", "endpoint"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "otlp", "protocol"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "otlp", "headers"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "otlp", "timeout"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp", "ca_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "otlp", "cert_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "otlp", "key_file"),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "otlp", "temporality"),
)
ENVIRONMENT = ("PGQUE_DSN", "PGQUE_SHARD", *(variable for variable, _, _ in _VARIABLES))  # all that are read
_ORIGINS: Mapping[str, tuple[str | int, ...]] = {"": (), "target": ("targets", 0), "otlp": ("otlp",)}


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """A line about each PGQUE_ variable that resembles one of ours.

    Others are not ours to judge: Kubernetes makes such variables for every service named pgque.
    """
    known = {name.removeprefix("PGQUE_") for name in ENVIRONMENT if name.startswith("PGQUE_")}
    lines: list[str] = []
    for name in sorted(environ):
        rest = name.removeprefix("PGQUE_")
        if rest != name and rest not in known and (close := difflib.get_close_matches(rest, known, 1)):
            lines.append(f"unknown variable {name}. Did you mean PGQUE_{close[0]}?")
    return lines


def _from_text(variable: str, value: str) -> object:
    if variable == "OTEL_EXPORTER_OTLP_HEADERS":
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        if any(not equals or not key.strip() for key, equals, _ in pairs):
            raise UserError("headers can't be read", where=variable, hint="write name=value,name=value")
        return {unquote(key.strip()): unquote(text.strip()) for key, _, text in pairs}
    if variable == "OTEL_EXPORTER_OTLP_TIMEOUT":
        if not value.isdecimal():
            what = f"{value!r} is not a number of milliseconds"
            raise UserError(what, where=variable, hint="write 10000 for 10 s")
        return f"{value}ms"
    if variable == "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE":
        # The specification takes any case. Low memory is what we need least of when nothing is subtracted.
        return "cumulative" if value.lower() == "lowmemory" else value.lower()
    return value


# --- raw input -----------------------------------------------------------------------------------

_FEWEST_POINTS, _MOST_POINTS = 5_000, 10_000_000  # at least what one request may hold



def parse_listen(text: object) -> Listen:
    """`host:port` or `[ipv6]:port`; ValueError for anything else."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and colon):
        raise PydanticCustomError(
            "listen", "{given} is not host:port|write 127.0.0.1:9718, or 0.0.0.0:9718 for every interface",
            {"given": quote(text)},
        )  # fmt: skip
    if not port.isdecimal() or int(port) > 65535:
        raise PydanticCustomError(
            "listen", "{given} is not a port|choose a number from 1 to 65535 (0 for any free one)",
            {"given": quote(port)},
        )  # fmt: skip
    return Listen(host, int(port))


def _protocol(value: object) -> object:
    return "http" if value == "http/protobuf" else value


def _queue_points(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not _FEWEST_POINTS <= value <= _MOST_POINTS:
        raise PydanticCustomError(
            "queue_points",
            "{given} is not a number from {fewest} to {most}|a point takes about 250 bytes of memory",
            {"given": quote(value), "fewest": f"{_FEWEST_POINTS:,}", "most": f"{_MOST_POINTS:,}"},
        )
    return value


_Address = Annotated[Any, BeforeValidator(parse_listen)]


class _RawOtlp(RawModel):
    endpoint: str
    protocol: Annotated[Literal["grpc", "http"], BeforeValidator(_protocol)] = "http"
    headers: dict[str, str] = Field(default={})
    timeout: Duration = DEFAULT_OTLP_TIMEOUT
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    temporality: Literal["cumulative", "delta"] = "cumulative"
    queue_points: Annotated[int, BeforeValidator(_queue_points)] = DEFAULT_QUEUE_POINTS


class _RawConfig(RawModel):
    listen: _Address = Field(default=DEFAULT_LISTEN, validate_default=True)
    health_listen: _Address | None = None
    web_config: str | None = None
    interval: Duration = DEFAULT_INTERVAL
    timeout: Duration | None = None
    stale_after: Duration | None = None
    targets: list[RawTarget] | None = None
    target_files: list[str] = Field(default=[])
    otlp: _RawOtlp | None = None
    archive: RawArchive | None = None
    leader: RawLeader | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    limits: RawLimits = RawLimits()


_MODELS: Models = {
    (): _RawConfig,
    ("otlp",): _RawOtlp,
    ("archive",): RawArchive,
    ("leader",): RawLeader,
    ("limits",): RawLimits,
    **MODELS,
}


# --- from raw to ready ---------------------------------------------------------------------------


def _build(raw: _RawConfig, where: Where, written: Sequence[Entry], files: Files | None) -> Config:
    if not raw.target_files and not raw.targets:
        what = "targets is missing" if raw.targets is None else "targets needs at least one entry"
        hint = "list databases there, or files of them in target_files"
        raise UserError(what, where=where(("targets",)), hint=hint)
    limits = Limits(**raw.limits.model_dump())
    defaults = Defaults(raw.interval, raw.timeout, raw.stale_after, where(("stale_after",)), limits)
    databases = build(written, defaults)
    if raw.leader is not None and raw.otlp is None and raw.archive is None:
        what = "leader decides who pushes or archives, and otlp and archive are missing"
        hint = "leave it out: each replica can be scraped"
        raise UserError(what, where=where(("leader",)), hint=hint)
    return Config(
        listen=raw.listen,
        interval=raw.interval,
        targets=databases.targets,
        otlp=_otlp(raw.otlp, where) if raw.otlp else None,
        log_level=raw.log_level,
        discoveries=databases.discoveries,
        files=files,
        leader=build_leader(raw.leader, where) if raw.leader is not None else None,
        limits=limits,
        health_listen=raw.health_listen,
        web_config=Path(raw.web_config) if raw.web_config is not None else None,
        archive=build_archive(raw.archive, where) if raw.archive is not None else None,
    )


def _otlp(raw: _RawOtlp, where: Where) -> OtlpConfig:
    place = where(("otlp", "endpoint"))
    try:
        url = urlsplit(raw.endpoint)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UserError(
            "endpoint is not a URL with http:// or https://",
            where=place,
            hint="write http://localhost:4317 for grpc, http://localhost:4318 for http",
        )
    if url.username is not None or url.password is not None:
        raise UserError("endpoint must not hold a user or password", where=place, hint="use headers")
    for name, text in raw.headers.items():
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(text):
            continue
        raise UserError("a header has characters that headers can't have", where=where(("otlp", "headers")))
    ca_file = _certificates(raw.ca_file, where(("otlp", "ca_file"))) if raw.ca_file is not None else None
    client = _client(raw, where)
    return OtlpConfig(
        raw.endpoint.rstrip("/"),
        raw.protocol,
        dict(raw.headers),
        raw.timeout,
        ca_file,
        raw.temporality,
        raw.queue_points,
        client,
    )


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


def _certificates(name: str, where: str) -> Path:
    path = readable(name, where)
    try:
        ssl.create_default_context(cafile=name)
    except ssl.SSLError:
        raise UserError(f"{name} holds no certificate", where=where, hint="name a file in PEM form") from None
    return path


def _client(raw: _RawOtlp, where: Where) -> tuple[Path, Path] | None:
    if raw.cert_file is None and raw.key_file is None:
        return None
    given = "cert_file" if raw.cert_file is not None else "key_file"
    place = where(("otlp", given))
    if raw.cert_file is None or raw.key_file is None:
        raise UserError("cert_file and key_file belong together", where=place, hint="give both")
    if not raw.endpoint.startswith("https:"):
        raise UserError("cert_file is of use with TLS only", where=place, hint="write https:// in endpoint")
    pair = readable(raw.cert_file, place), readable(raw.key_file, where(("otlp", "key_file")))
    try:
        # A password would be asked for on the terminal, and the service wait for it.
        ssl.create_default_context().load_cert_chain(*pair, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise UserError(
            "cert_file and key_file are no certificate and its key",
            where=place,
            hint="both must be in PEM form, the key without a password",
        ) from None
    return pair
