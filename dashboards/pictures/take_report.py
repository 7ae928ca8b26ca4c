"""Take a picture of the report on the demo's generated weeks into docs/pictures/: part of `make pictures`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dashboards.pictures.browser import PICTURES, carry_out, require_programs, told
from tests.support.java import java_home
from tests.support.tools import Unavailable

_WIDTH, _HEIGHT = 1300, 1240  # the first screen, and the beginning of what follows


@dataclass(frozen=True)
class Shot:
    """A picture to be taken of a page: all of it, unless there is a height."""

    picture: Path
    width: int
    height: int | None = None
    dark: bool = False


@dataclass(frozen=True)
class Seen:
    """How wide the page was, and what the browser complained about or would have fetched."""

    width: int
    messages: Sequence[str]


def shoot(page: Path, shots: Sequence[Shot]) -> list[Seen]:
    """Take these pictures of a page on the disk; raises Unavailable."""
    wanted = [
        {"picture": str(shot.picture), "width": shot.width, "height": shot.height, "dark": shot.dark}
        for shot in shots
    ]
    reports = carry_out("shoot.mjs", {"page": str(page), "shots": wanted})
    return [Seen(report["width"], report["messages"]) for report in reports]


def main() -> int:
    try:
        require_programs()
        home = java_home()
    except Unavailable as error:
        print(f"no picture of the report: {error}", file=sys.stderr)
        return 2
    environment = os.environ if home is None else {**os.environ, "JAVA_HOME": str(home)}
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pgque-report-") as folder:
        command = [sys.executable, "-m", "pgque_pipeline", "demo", "--quiet", "--folder", folder]
        subprocess.run(command, env=environment, check=True)
        picture = PICTURES / "pgque-report.png"
        [seen] = shoot(Path(folder) / "report.html", [Shot(picture, _WIDTH, _HEIGHT)])
    print(told(picture))
    for message in seen.messages:
        print(message, file=sys.stderr)
    return 1 if seen.messages else 0


if __name__ == "__main__":
    sys.exit(main())
