"""What is published holds all that an installation needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import ROOT, tracked_files

LOOK = """
from pgque_exporter import catalogue, sqlfiles
print(catalogue.__file__)
print(len(list(catalogue.load())))
for name in sqlfiles.packs():
    print(name, len(sqlfiles.pack_install_sql(name)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, ROOT], check=True, stdin=subprocess.DEVNULL
    )
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_every_file_of_the_package_and_all_sql(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = tracked_files("exporter/pgque_exporter", "pipeline/pgque_pipeline")
    sql = tracked_files("sql/pgque", "sql/observability", "sql/history")
    assert sources
    assert sql
    wanted = {"/".join(path.relative_to(ROOT).parts[1:]) for path in sources}
    wanted |= {f"pgque_exporter/{path.relative_to(ROOT).as_posix()}" for path in sql}
    assert packed == wanted


def test_it_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith(str(tmp_path))
    assert "pgque " in result.stdout
