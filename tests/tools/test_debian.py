"""Programs for tests: found where installed, and a clear reason where they can't be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import debian
from tests.support.debian import find_program, library_env, status_without
from tests.support.tools import Program, Unavailable

STATUS = """\
Package: server
Status: install ok installed
Version: 1
Depends: library (= 1)
Description: serves
 and serves

Package: library
Status: install ok installed
Version: 2
Conflicts: server

Package: other
Status: deinstall ok config-files
Version: 3
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the one that holds what was fetched."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setattr(debian, "tools_folder", lambda _: folder)
    monkeypatch.setattr(debian, "_failures", {})
    return folder


def make_executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_an_installed_program_is_used(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = make_executable(tmp_path / "bin/promtool")
    monkeypatch.setenv("PATH", str(installed.parent))
    assert find_program("promtool") == Program(installed)
    assert list(tools.iterdir()) == []


def test_an_unpacked_program_is_used_with_its_libraries(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = make_executable(tools / "prometheus/usr/bin/promtool")
    libraries = tools / "prometheus/usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    program = find_program("promtool")
    assert program == Program(unpacked, {"LD_LIBRARY_PATH": f"{libraries}:/opt/lib"})
    assert program.full_env() == {**os.environ, **program.env}


def test_without_apt_the_reason_is_told(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="no apt here"):
        find_program("promtool")
    assert not (tools / "prometheus").exists()


def test_the_reason_is_found_once(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for _ in range(2):
        with pytest.raises(Unavailable, match="no apt here"):
            find_program("prometheus")
        monkeypatch.setattr(debian, "_download", lambda *_: pytest.fail("asked again"))


def test_an_unpacking_cut_short_leaves_no_half_a_tree(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    broken = tools / "broken.deb"
    broken.write_text("no package")
    with pytest.raises(OSError, match="dpkg-deb"):
        debian._unpack([broken], tools / "prometheus")
    assert not (tools / "prometheus").exists()


def test_wanted_packages_count_as_absent_and_nothing_is_broken(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS)
    assert status_without(["server"], status).strip() == (
        "Package: library\nStatus: install ok installed\nVersion: 2\n\n"
        "Package: other\nStatus: deinstall ok config-files\nVersion: 3"
    )


def test_a_tree_without_libraries_needs_no_path(tmp_path: Path) -> None:
    assert library_env(tmp_path) == {}


def test_links_to_places_of_a_system_lead_within_the_tree(tmp_path: Path) -> None:
    home, settings = tmp_path / "usr/lib/jvm/java/lib", tmp_path / "etc/java"
    home.mkdir(parents=True)
    settings.mkdir(parents=True)
    (settings / "jvm.cfg").write_text("-server KNOWN\n")
    (home / "jvm.cfg").symlink_to("/etc/java/jvm.cfg")
    (home / "zone").symlink_to("/usr/share/zoneinfo/UTC")
    (home / "near").symlink_to("jvm.cfg")
    debian.lead_within(tmp_path)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    found = moved / "usr/lib/jvm/java/lib"
    assert (found / "near").read_text() == (found / "jvm.cfg").read_text() == "-server KNOWN\n"
    assert (found / "zone").readlink() == Path("/usr/share/zoneinfo/UTC")
