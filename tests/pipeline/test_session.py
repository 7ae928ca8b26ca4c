"""Without a Java that Spark can run on, a person is told what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgque_exporter.errors import UserError
from pgque_pipeline.session import open_session


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('openjdk version "11.0.2"', "is Java 11"),
        ('java version "1.8.0_292"', "is Java 1"),
        ("who knows", "does not tell its version"),
    ],
)
def test_an_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    program = tmp_path / "bin/java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match=rf"Java 17 or newer.*{told}.*openjdk-17-jre-headless"):
        open_session()


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"none was found.*set JAVA_HOME"):
        open_session()
