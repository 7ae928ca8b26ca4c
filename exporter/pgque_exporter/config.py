"""Configuration: a YAML file, or the environment alone for one database.

A file is the whole truth: with one, no variable but libpq's own (`PGHOST`, `PGUSER`, ...) counts.
Pydantic checks the raw input here; what leaves this module is frozen dataclasses.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from pgque_exporter import yaml_lines
from pgque_exporter.errors import UserError

Where = Callable[[yaml_lines.Path], str]  # from the path of a value to a place that a person can find
Models = Mapping[tuple[str, ...], type[BaseModel]]  # by the names on the way to them

DEFAULT_LISTEN = "127.0.0.1:9718"
DEFAULT_INTERVAL = 15.0
DEFAULT_OTLP_TIMEOUT = 10.0
DEFAULT_QUEUE_POINTS = 200_000
LONGEST_DEFAULT_TIMEOUT = 10.0
STALE_INTERVALS = 4


@dataclass(frozen=True)
class Listen:
    """Where the HTTP server listens; port 0 is any free one."""

    host: str
    port: int


@dataclass(frozen=True)
class Limits:
    """How much is exported. Series are counted as on a page: a line each.

    series             of all targets together
    series_per_target  of one
    labels             of one series, `engine` and `database` included
    label_length       characters of a label's value
    """

    series: int = 500_000
    series_per_target: int = 100_000
    labels: int = 30
    label_length: int = 1024


@dataclass(frozen=True)
class TargetConfig:
    """One database. Times in seconds; `name` is the value of the `database` label."""

    name: str
    dsn: str = field(repr=False)
    password_file: Path | None = None
    interval: float = DEFAULT_INTERVAL
    timeout: float = LONGEST_DEFAULT_TIMEOUT
    stale_after: float = DEFAULT_INTERVAL * STALE_INTERVALS
    packs: tuple[str, ...] = ()
    limits: Limits = Limits()


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
class Config:
    """Everything that a run needs to know. `interval` in seconds, the default of the targets."""

    listen: Listen
    interval: float
    targets: tuple[TargetConfig, ...]
    otlp: OtlpConfig | None
    log_level: str
    limits: Limits = Limits()
    health_listen: Listen | None = None
    web_config: Path | None = None


def load_file(path: str | Path) -> Config:
    """Read a YAML file; whatever is wrong with it is a UserError that names file and line."""
    name = str(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        what = f"can't read the configuration: {reason}"
        raise UserError(what, where=name, hint="check the path after --config") from None
    document = yaml_lines.parse(text, name)
    data = {} if document.data is None else document.data
    try:
        raw = _RawConfig.model_validate(data)
    except ValidationError as error:
        raise first_error(error, document.where, _MODELS) from None
    return _build(raw, document.where)


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
    return _build(raw, where)


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
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "otlp", "temporality"),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "otlp", "cert_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "otlp", "key_file"),
)
ENVIRONMENT = ("PGQUE_DSN", *(variable for variable, _, _ in _VARIABLES))  # all that are read
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

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHORTEST, _LONGEST = 0.01, 86400.0
_LONGEST_NAME = 200
_FEWEST_POINTS, _MOST_POINTS = 5_000, 10_000_000  # at least what one request may hold


def parse_duration(text: object) -> float:
    """Seconds of `500ms`, `15s`, `1m`, `2h`; ValueError for anything else."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PydanticCustomError(
            "duration",
            "{given} is not a duration|write a number with ms, s, m or h, such as 15s",
            {"given": _quote(text)},
        )
    seconds = float(match[1]) * _SECONDS[match[2]]
    if not _SHORTEST <= seconds <= _LONGEST:
        raise PydanticCustomError(
            "duration", "{given} is out of range|choose something from 10ms to 24h", {"given": _quote(text)}
        )
    return seconds


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
            {"given": _quote(text)},
        )  # fmt: skip
    if not port.isdecimal() or int(port) > 65535:
        raise PydanticCustomError(
            "listen", "{given} is not a port|choose a number from 1 to 65535 (0 for any free one)",
            {"given": _quote(port)},
        )  # fmt: skip
    return Listen(host, int(port))


def _quote(value: object) -> str:
    return repr(value if isinstance(value, str) else str(value))[:80]


def _protocol(value: object) -> object:
    return "http" if value == "http/protobuf" else value


def _queue_points(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or not _FEWEST_POINTS <= value <= _MOST_POINTS:
        raise PydanticCustomError(
            "queue_points",
            "{given} is not a number from {fewest} to {most}|a point takes about 250 bytes of memory",
            {"given": _quote(value), "fewest": f"{_FEWEST_POINTS:,}", "most": f"{_MOST_POINTS:,}"},
        )
    return value


_Duration = Annotated[float, BeforeValidator(parse_duration)]
_Address = Annotated[Any, BeforeValidator(parse_listen)]


class RawModel(BaseModel):
    """Raw input: no key unknown, no type guessed, no value in an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class _RawTarget(RawModel):
    dsn: str
    name: str | None = None
    password_file: str | None = None
    interval: _Duration | None = None
    timeout: _Duration | None = None
    packs: list[str] = []


class _RawOtlp(RawModel):
    endpoint: str
    protocol: Annotated[Literal["grpc", "http"], BeforeValidator(_protocol)] = "http"
    headers: dict[str, str] = {}
    timeout: _Duration = DEFAULT_OTLP_TIMEOUT
    ca_file: str | None = None
    temporality: Literal["cumulative", "delta"] = "cumulative"
    queue_points: Annotated[int, BeforeValidator(_queue_points)] = DEFAULT_QUEUE_POINTS
    cert_file: str | None = None
    key_file: str | None = None


_Count = Annotated[int, Field(ge=1, le=100_000_000)]


class _RawLimits(RawModel):
    series: _Count = Limits.series
    series_per_target: _Count = Limits.series_per_target
    labels: _Count = Limits.labels
    label_length: _Count = Limits.label_length


class _RawConfig(RawModel):
    listen: _Address = Field(default=DEFAULT_LISTEN, validate_default=True)
    health_listen: _Address | None = None
    web_config: str | None = None
    interval: _Duration = DEFAULT_INTERVAL
    timeout: _Duration | None = None
    stale_after: _Duration | None = None
    targets: list[_RawTarget] = Field(min_length=1)
    otlp: _RawOtlp | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    limits: _RawLimits = _RawLimits()


# --- errors --------------------------------------------------------------------------------------

_SIMPLE = {
    "missing": "is missing",
    "string_type": "must be text, in quotes",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least 1",
    "less_than_equal": "must be at most 100,000,000",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of names to texts",
    "model_type": "must hold `key: value` lines",
    "too_short": "needs at least one entry",
}


def first_error(error: ValidationError, where: Where, models: Models) -> UserError:
    """What to tell a person about the first of the mistakes that pydantic found."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = first["loc"]
    key = next((str(step) for step in reversed(path) if isinstance(step, str)), "")
    if path[:2] == ("otlp", "headers"):  # the name of a header alone would say too little
        key = ".".join(str(step) for step in path if step != "[key]")
    place = where(path)
    if first["type"] in ("extra_forbidden", "invalid_key"):
        model = models[tuple(step for step in path[:-1] if isinstance(step, str))]
        known = sorted(model.model_fields)
        close = difflib.get_close_matches(str(path[-1]), known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
        return UserError(f"unknown key {path[-1]!r}", where=place, hint=hint)
    if first["type"] == "literal_error":
        return UserError(f"{key} must be {first['ctx']['expected']}", where=place)
    if first["type"] in _SIMPLE:
        return UserError(f"{key or 'the configuration'} {_SIMPLE[first['type']]}", where=place)
    what, _, hint = first["msg"].partition("|")
    return UserError(f"{key}: {what}", where=place, hint=hint or None)


_MODELS: Models = {
    (): _RawConfig,
    ("targets",): _RawTarget,
    ("otlp",): _RawOtlp,
    ("limits",): _RawLimits,
}


# --- from raw to ready ---------------------------------------------------------------------------


def _build(raw: _RawConfig, where: Where) -> Config:
    targets: list[TargetConfig] = []
    names: set[str] = set()
    for index, raw_target in enumerate(raw.targets):
        target = _target(raw, raw_target, index, where)
        if target.name in names:
            # Two databases under one label would mix their series.
            raise UserError(
                f"a target named {target.name!r} exists already",
                where=where(("targets", index, "name")),
                hint="give each target a name of its own",
            )
        names.add(target.name)
        targets.append(target)
    return Config(
        listen=raw.listen,
        interval=raw.interval,
        targets=tuple(targets),
        otlp=_otlp(raw.otlp, where) if raw.otlp else None,
        log_level=raw.log_level,
        limits=Limits(**raw.limits.model_dump()),
        health_listen=raw.health_listen,
        web_config=Path(raw.web_config) if raw.web_config is not None else None,
    )


def _target(raw: _RawConfig, target: _RawTarget, index: int, where: Where) -> TargetConfig:
    path = ("targets", index)
    database = _check_dsn(target.dsn, where((*path, "dsn")))
    name = target.name if target.name is not None else database
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        what = f"a target's name must have 1 to {_LONGEST_NAME} printable characters"
        raise UserError(what, where=where((*path, "name")))
    interval = target.interval or raw.interval
    timeout = target.timeout or raw.timeout or min(interval, LONGEST_DEFAULT_TIMEOUT)
    # A poll's data is as old as the poll took when it arrives. Until the next one arrives, an interval
    # passes, and the time that one takes.
    stale_after = raw.stale_after or max(interval * STALE_INTERVALS, interval + 2 * timeout)
    if stale_after < interval + timeout:
        raise UserError(
            f"stale_after is shorter than interval and timeout of {name!r} together",
            where=where(("stale_after",)),
            hint="its series would come and go between two polls: choose several intervals",
        )
    password_file = None
    if target.password_file is not None:
        password_file = _readable(target.password_file, where((*path, "password_file")))
    return TargetConfig(
        name,
        target.dsn,
        password_file,
        interval,
        timeout,
        stale_after,
        tuple(target.packs),
        Limits(**raw.limits.model_dump()),
    )


def _check_dsn(dsn: str, where: str) -> str:
    """The name of the database that `dsn` leads to; its text never becomes part of an error."""
    hint = (
        "write postgresql://user@host/dbname or host=... dbname=...; in a URI write %40 for @ and %2F for / "
        "within a password, or use password_file"
    )
    try:
        given = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        raise UserError("the dsn is not a libpq connection string", where=where, hint=hint) from None
    if "@" in str(given.get("host", "")) or "@" in str(given.get("dbname", "")):
        # The rest of a password that held a plain @ or /: better said now than as a name lookup that fails.
        raise UserError("the dsn's host or dbname has an @ in it", where=where, hint=hint)
    if service := given.get("service"):
        return str(given.get("dbname") or service)
    defaults = {
        option.keyword.decode(): option.val.decode("utf-8", "replace")
        for option in psycopg.pq.Conninfo.get_defaults()
        if option.val
    }
    merged = defaults | {key: str(value) for key, value in given.items() if value}
    return merged.get("dbname") or merged.get("user") or "postgres"


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
    path = _readable(name, where)
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
    pair = _readable(raw.cert_file, place), _readable(raw.key_file, where(("otlp", "key_file")))
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


def _readable(name: str, where: str) -> Path:
    path = Path(name)
    try:
        path.read_bytes()
    except OSError as error:
        raise UserError(
            f"can't read {name}: {error.strerror}", where=where, hint="check the path and its permissions"
        ) from None
    return path
