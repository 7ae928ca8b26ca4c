"""Draw every dashboard over the running demo into docs/pictures/: what `make pictures` does.

Ends with exit code 1, and says which, when a panel fails or has nothing to show.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dashboards.pictures.browser import PICTURES, carry_out, require_programs, told
from tests.support.dashboards import Board, boards
from tests.support.demo import run_watched_demo
from tests.support.tools import Unavailable

WIDTH = 1600  # pixels
SCRAPE_SECONDS = 4  # a multiple of the time between the demo's polls, or charts show the beat of the two


@dataclass(frozen=True)
class Drawn:
    """One dashboard's picture, where links in it lead, and what went wrong."""

    picture: Path
    links: Sequence[str]
    problems: Sequence[str]


def draw(
    chosen: Sequence[Board], folder: Path, *, prometheus: str, scrape_seconds: int, minutes: int
) -> Iterator[Drawn]:
    """Draw these dashboards as PNG files in `folder`, with the last minutes on show."""
    reports = carry_out(
        "render.mjs",
        {
            "prometheus": prometheus,
            "scrapeSeconds": scrape_seconds,
            "range": {"from": f"now-{minutes}m", "to": "now"},
            "width": WIDTH,
            "boards": [{"file": str(b.path), "picture": str(folder / f"{b.uid}.png")} for b in chosen],
        },
    )
    for board, report in zip(chosen, reports, strict=True):
        yield Drawn(folder / f"{board.uid}.png", report["links"], problems(board, report))


def problems(board: Board, report: Any) -> list[str]:
    """What is wrong with a picture, each with the name of its panel."""
    found = [f"{board.uid}: {message}" for message in report["messages"]]
    for panel in report["panels"]:
        where = f"{board.uid}, panel {panel['id']} ({panel['title']})"
        if panel.get("error"):
            found.append(f"{where}: {panel['error']}")
        elif panel["state"] != "Done":
            found.append(f"{where}: not drawn in time ({panel['state']})")
        elif not panel["rows"]:
            found.append(f"{where}: nothing to show")
    found += [f"{board.uid}, panel {panel}: says that it has no data" for panel in report["empty"]]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw every dashboard over the running demo.")
    parser.add_argument("--minutes", type=int, default=10, help="of the demo, before (default: 10)")
    uids = [board.uid for board in boards()]
    parser.add_argument("--only", nargs="+", choices=uids, default=uids, metavar="UID", help="some of them")
    arguments = parser.parse_args()
    minutes = arguments.minutes
    try:
        require_programs()
    except Unavailable as error:
        print(f"no pictures: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of everything that is to be ended
    PICTURES.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="pgque-pictures-") as folder,
        run_watched_demo(Path(folder), scrape_interval=f"{SCRAPE_SECONDS}s") as watched,
    ):
        print(f"The demo runs; its dashboards are drawn in {minutes} minutes.", flush=True)
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            time.sleep(1)
            if watched.demo.returncode is not None:
                print(f"the demo has ended before{watched.demo.log_tail()}", file=sys.stderr)
                return 1
        for drawn in draw(
            [board for board in boards() if board.uid in arguments.only],
            PICTURES,
            prometheus=watched.prometheus.url,
            scrape_seconds=SCRAPE_SECONDS,
            minutes=minutes + 1,  # how all began, too
        ):
            print(told(drawn.picture))
            wrong += drawn.problems
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
