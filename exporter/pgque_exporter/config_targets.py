"""The databases of a configuration: single ones, files full of them, and servers to be searched."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from pgque_exporter import catalogue, yaml_lines
from pgque_exporter.config_limits import DEFAULT_LIMITS, Limits
from pgque_exporter.config_values import Duration, Models, RawModel, Where, first_error, readable
from pgque_exporter.errors import UserError

DEFAULT_INTERVAL = 15.0
DEFAULT_DISCOVERY_INTERVAL = 60.0
LONGEST_DEFAULT_TIMEOUT = 10.0
STALE_INTERVALS = 4
_LONGEST_NAME = 200
_LONGEST_LABEL = 200


@dataclass(frozen=True)
class TargetConfig:
    """One database. Times in seconds; `name` is the value of the `database` label, `labels` come on top."""

    name: str
    dsn: str = field(repr=False)
    password_file: Path | None = None
    interval: float = DEFAULT_INTERVAL
    timeout: float = LONGEST_DEFAULT_TIMEOUT
    stale_after: float = DEFAULT_INTERVAL * STALE_INTERVALS
    packs: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    limits: Limits = DEFAULT_LIMITS
    history: bool = False  # whether its rows of history may be about other databases


@dataclass(frozen=True)
class DiscoveryConfig:
    """A server whose databases are looked for every `interval` seconds.

    `server` is one database of it, to ask for the others; they inherit all its settings. The patterns
    are those of a shell.
    """

    server: TargetConfig
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    interval: float = DEFAULT_DISCOVERY_INTERVAL

    @property
    def name(self) -> str:
        """Name of the server; that of a database is `server/database`."""
        return self.server.name

    def wants(self, database: str) -> bool:
        """Whether the patterns choose this database."""
        chosen = any(fnmatchcase(database, pattern) for pattern in self.include)
        return chosen and not any(fnmatchcase(database, pattern) for pattern in self.exclude)

    def target(self, database: str) -> TargetConfig | None:
        """How to poll a database of the server; None if its name can't be a label."""
        name = f"{self.name}/{database}"
        if not is_name(name):
            return None
        return replace(self.server, name=name, dsn=make_conninfo(self.server.dsn, dbname=database))


@dataclass(frozen=True)
class Databases:
    """All that a configuration wants to have polled."""

    targets: tuple[TargetConfig, ...]
    discoveries: tuple[DiscoveryConfig, ...]


def is_name(text: str) -> bool:
    """Whether a target may have this name."""
    return bool(text.strip()) and len(text) <= _LONGEST_NAME and text.isprintable()


# --- raw input -----------------------------------------------------------------------------------


class RawDiscover(RawModel):
    """Which databases of a server, and how often to look for new ones."""

    include: list[str] = Field(default=["*"])
    exclude: list[str] = Field(default=[])
    interval: Duration = DEFAULT_DISCOVERY_INTERVAL


def _switch(value: object) -> object:
    """`discover: true` is the block without a line in it."""
    return ({} if value else None) if isinstance(value, bool) else value


class RawTarget(RawModel):
    """One entry of a list of targets."""

    dsn: str
    name: str | None = None
    password_file: str | None = None
    interval: Duration | None = None
    timeout: Duration | None = None
    packs: list[str] = Field(default=[])
    labels: dict[str, str] = Field(default={})
    discover: Annotated[RawDiscover | None, BeforeValidator(_switch)] = None
    history: bool = False


MODELS: Models = {("targets",): RawTarget, ("targets", "discover"): RawDiscover}
_TARGETS: TypeAdapter[list[RawTarget]] = TypeAdapter(list[RawTarget])


@dataclass(frozen=True)
class Entry:
    """A target as it was written; `where` takes the path of a value within it."""

    raw: RawTarget
    where: Where


def entries(targets: Sequence[RawTarget], where: Where, *prefix: str) -> Iterator[Entry]:
    """The targets of a list; it stands at `prefix` in the document that `where` belongs to."""
    for index, raw in enumerate(targets):
        yield Entry(raw, lambda path, index=index: where((*prefix, index, *path)))  # type: ignore[misc]


def read_files(paths: Sequence[Path]) -> Iterator[Entry]:
    """The targets of files that each hold a list of them; UserError with file and line."""
    for path in paths:
        document = yaml_lines.read(path, "the targets")
        try:
            targets = _TARGETS.validate_python([] if document.data is None else document.data)
        except ValidationError as error:
            raise first_error(error, document.where, MODELS, within=("targets",)) from None
        yield from entries(targets, document.where)


def matching(patterns: Sequence[str]) -> list[Path]:
    """The files that the patterns lead to, each once: in the order of the patterns, then by name."""
    found: dict[str, None] = {}
    for pattern in patterns:
        names = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        found.update(dict.fromkeys(name for name in names if not os.path.isdir(name)))
    return [Path(name) for name in found]


# --- from raw to ready ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Defaults:
    """What targets have that don't say otherwise; seconds. `place` is where `stale_after` stands."""

    interval: float
    timeout: float | None
    stale_after: float | None
    place: str
    limits: Limits = DEFAULT_LIMITS


def build(written: Sequence[Entry], defaults: Defaults) -> Databases:
    """The targets made ready; UserError for the first that can't be."""
    targets: list[TargetConfig] = []
    discoveries: list[DiscoveryConfig] = []
    names: set[str] = set()
    for entry in written:
        target = _target(entry, defaults)
        if target.name in names:
            # Two databases under one label would mix their series.
            raise UserError(
                f"a target named {target.name!r} exists already",
                where=entry.where(("name",)),
                hint="give each target a name of its own",
            )
        names.add(target.name)
        discover = entry.raw.discover
        if target.history and (discover is not None or any(other.history for other in targets)):
            # What two say of a third would be on the page twice.
            raise UserError(
                "history is for one database", where=entry.where(("history",)),
                hint="leave it to the one that the pipeline publishes to",
            )  # fmt: skip
        if discover is None:
            targets.append(target)
        else:
            discoveries.append(_discovery(target, discover, entry))
    return Databases(tuple(targets), tuple(discoveries))


def _target(entry: Entry, defaults: Defaults) -> TargetConfig:
    raw, where = entry.raw, entry.where
    database = check_dsn(raw.dsn, where(("dsn",)))
    name = raw.name if raw.name is not None else database
    if not is_name(name):
        what = f"a target's name must have 1 to {_LONGEST_NAME} printable characters"
        raise UserError(what, where=where(("name",)))
    interval = raw.interval or defaults.interval
    timeout = raw.timeout or defaults.timeout or min(interval, LONGEST_DEFAULT_TIMEOUT)
    # A poll's data is as old as the poll took when it arrives. Until the next one arrives, an interval
    # passes, and the time that one takes.
    stale_after = defaults.stale_after or max(interval * STALE_INTERVALS, interval + 2 * timeout)
    if stale_after < interval + timeout:
        raise UserError(
            f"stale_after is shorter than interval and timeout of {name!r} together",
            where=defaults.place,
            hint="its series would come and go between two polls: choose several intervals",
        )
    password_file = None
    if raw.password_file is not None:
        password_file = readable(raw.password_file, where(("password_file",)))
    return TargetConfig(
        name=name,
        dsn=raw.dsn,
        password_file=password_file,
        interval=interval,
        timeout=timeout,
        stale_after=stale_after,
        packs=tuple(raw.packs),
        labels=_labels(raw.labels, where),
        limits=defaults.limits,
        history=raw.history,
    )


_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def _labels(given: Mapping[str, str], where: Where) -> tuple[tuple[str, str], ...]:
    # A metric that had the label already would have it twice, and no page may hold such a sample.
    reserved = {"engine", "database", "le", "quantile"}
    if given:
        reserved.update(name for metric in catalogue.load() for name in metric.labels)
    for name, value in given.items():
        place = where(("labels", name))
        if not _LABEL_NAME.fullmatch(name) or name.startswith("__") or len(name) > _LONGEST_LABEL:
            what = f"{name[:80]!r} can't be the name of a label"
            hint = "use letters, digits and _, and no digit or __ at the beginning"
            raise UserError(what, where=place, hint=hint)
        if name in reserved:
            what, hint = f"the label {name!r} is the service's own", "choose another name"
            raise UserError(what, where=place, hint=hint)
        if not value or len(value) > _LONGEST_LABEL or not value.isprintable():
            what = f"the label {name!r} must have 1 to {_LONGEST_LABEL} printable characters"
            raise UserError(what, where=place)
    return tuple(sorted(given.items()))


def _discovery(target: TargetConfig, raw: RawDiscover, entry: Entry) -> DiscoveryConfig:
    if entry.raw.name is None:
        # Without one, two servers' databases would be indistinguishable, and so would server and database.
        raise UserError(
            "a target with discover needs a name",
            where=entry.where(("discover",)),
            hint="name the server: its databases become server/database",
        )
    return DiscoveryConfig(target, tuple(raw.include), tuple(raw.exclude), raw.interval)


def check_dsn(dsn: str, where: str) -> str:
    """The name of the database that `dsn` leads to; its text never becomes part of an error."""
    hint = (
        "write postgresql://user@host/dbname or host=... dbname=...; in a URI write %40 for @ and %2F for / "
        "within a password, or use password_file"
    )
    try:
        given: dict[str, Any] = conninfo_to_dict(dsn)
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
