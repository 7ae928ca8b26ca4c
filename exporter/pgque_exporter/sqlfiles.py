"""The SQL that ships with the package: queue engines, one observability pack per engine, and what
instruments it where there is such a thing; and the tables for the history that the pipeline publishes.

An installed wheel carries the files as package data; in a checkout they stand in `sql/`. A folder's
name is the name of the engine, and nothing else about engines is known here.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pgque_exporter.errors import UserError

_PACKS = "observability"
_HISTORY = "history"
_INSTRUMENTATION = "instrumentation"
_INSTALL = "install.sql"
_UNINSTALL = "uninstall.sql"


def sql_root() -> Traversable:
    """The folder that holds all SQL files."""
    packaged = files(__package__).joinpath("sql")
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / "sql"
    if checkout.joinpath(_PACKS).is_dir():
        return checkout
    raise UserError("the SQL files of this installation are missing", hint="install pgque-exporter again")


def packs() -> tuple[str, ...]:
    """Engines that have an observability pack, in alphabetical order."""
    return _installable(sql_root().joinpath(_PACKS))


def engines() -> tuple[str, ...]:
    """Queue engines that we ship ourselves, in alphabetical order."""
    return tuple(name for name in _installable(sql_root()) if name != _HISTORY)


def pack_install_sql(engine: str) -> str:
    """The whole script that installs the pack of `engine`; safe to run again."""
    return _read(_pack(engine).joinpath(_INSTALL))


def pack_uninstall_sql(engine: str) -> str:
    """The script that removes the pack of `engine` and leaves the engine alone."""
    return _read(_pack(engine).joinpath(_UNINSTALL))


def instrumented(engine: str) -> bool:
    """Whether the pack of `engine` brings instrumentation."""
    return _pack(engine).joinpath(_INSTRUMENTATION, _INSTALL).is_file()


def instrumentation_install_sql(engine: str) -> str:
    """The script that instruments `engine`, whose pack is installed; keeps what was counted."""
    return _read(_instrumentation(engine).joinpath(_INSTALL))


def instrumentation_uninstall_sql(engine: str) -> str:
    """The script that removes the instrumentation of `engine` and leaves the pack alone."""
    return _read(_instrumentation(engine).joinpath(_UNINSTALL))


def engine_install_sql(engine: str) -> str:
    """The whole script that installs the queue engine itself; keeps its data when run again."""
    return _read(_engine(engine).joinpath(_INSTALL))


def engine_uninstall_sql(engine: str) -> str:
    """The script that removes the queue engine with all its queues and events."""
    return _read(_engine(engine).joinpath(_UNINSTALL))


def history_install_sql() -> str:
    """The script that makes the tables for published history; keeps what is in them when run again."""
    return _read(sql_root().joinpath(_HISTORY, _INSTALL))


def history_uninstall_sql() -> str:
    """The script that removes published history and its tables."""
    return _read(sql_root().joinpath(_HISTORY, _UNINSTALL))


def verify_sql() -> str:
    """The query that checks an installed pack; it reads the setting `pgque_exporter.schema`."""
    return _read(sql_root().joinpath(_PACKS, "verify.sql"))


def _pack(engine: str) -> Traversable:
    _require(engine, packs(), "there is no observability pack for")
    return sql_root().joinpath(_PACKS, engine)


def _instrumentation(engine: str) -> Traversable:
    known = tuple(name for name in packs() if instrumented(name))
    _require(engine, known, "there is no instrumentation for")
    return _pack(engine).joinpath(_INSTRUMENTATION)


def _engine(engine: str) -> Traversable:
    _require(engine, engines(), "the package doesn't bring the queue engine")
    return sql_root().joinpath(engine)


def _require(engine: str, known: tuple[str, ...], problem: str) -> None:
    if engine not in known:
        raise UserError(f"{problem} {engine!r}", hint=f"known: {', '.join(known)}")


def _installable(folder: Traversable) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.joinpath(_INSTALL).is_file()))


def _read(file: Traversable) -> str:
    return file.read_text("utf-8")
