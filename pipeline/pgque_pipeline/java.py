"""The Java that Spark would run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgque_exporter.errors import UserError

JAVA_NEEDED = 17


@dataclass(frozen=True)
class Java:
    """A java program; `said` is what it tells of its version."""

    program: str
    said: str

    @property
    def version(self) -> int | None:
        """Its major version; None if it doesn't tell."""
        match = re.search(r'version "(\d+)', self.said)
        return int(match[1]) if match else None


def find_java() -> Java | None:
    """The java program that Spark would start: of JAVA_HOME, else of the path."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java") if not home else str(Path(home) / "bin/java")
    if program is None or not Path(program).exists():
        return None
    try:
        said = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,  # a terminal's Ctrl-C is for us, and does not make its answer wrong
        )
    except (OSError, subprocess.TimeoutExpired):
        return Java(program, "")
    return Java(program, said.stderr + said.stdout)


def needed_java() -> Java:
    """The same, of a version that fits. Raises UserError where there is none."""
    java = find_java()
    hint = f"install Java {JAVA_NEEDED} (Debian: openjdk-{JAVA_NEEDED}-jre-headless) or set JAVA_HOME"
    if java is None:
        raise UserError("Spark needs Java, and none was found", hint=hint)
    if java.version is None or java.version < JAVA_NEEDED:
        found = "does not tell its version" if java.version is None else f"is Java {java.version}"
        raise UserError(f"Spark needs Java {JAVA_NEEDED} or newer; {java.program} {found}", hint=hint)
    return java
