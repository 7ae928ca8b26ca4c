"""A dashboard drawn by Grafana's libraries in a browser, and one that is broken on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from dashboards.pictures.take import draw
from tests.dashboards.test_live import LONG_ENOUGH, answers
from tests.support.dashboards import FOLDER, Board
from tests.support.demo import WatchedDemo
from tests.support.processes import wait_for

# Has a panel of every kind that the dashboards use.
BOARD = Board(FOLDER / "pgque-dead-letters-retries.json")


def test_it_has_every_kind_of_panel() -> None:
    kinds = {panel["type"] for path in FOLDER.glob("*.json") for panel in Board(path).panels}
    assert {panel["type"] for panel in BOARD.panels} == kinds


def test_panels_are_drawn_and_those_that_fail_are_named(
    browser: None, watched_demo: WatchedDemo, tmp_path: Path
) -> None:
    wait_for(
        lambda: all(answers(watched_demo, question) for question in BOARD.questions()),
        "something to show in every panel",
        timeout=LONG_ENOUGH,
    )
    content = json.loads(BOARD.path.read_text("utf-8"))
    panels = {panel["id"]: panel for panel in content["panels"]}
    panels[9]["targets"][0]["expr"] = "pgque_nobody_has_heard_of"
    panels[10]["targets"][0]["expr"] = "sum("
    content["uid"] = "broken"
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(content), "utf-8")

    url = watched_demo.prometheus.url
    drawn = list(draw([BOARD, Board(broken)], tmp_path, prometheus=url, scrape_seconds=1, minutes=2))
    assert drawn[0].problems == []
    assert drawn[0].picture.read_bytes().startswith(b"\x89PNG")
    links = [dict(parse_qsl(urlsplit(link).query)) for link in drawn[0].links]
    narrowed = {"var-datasource": "prometheus", "var-database": "shop", "var-queue": "webhooks"}
    assert any(narrowed.items() <= link.items() and {"from", "to"} <= link.keys() for link in links), links
    found = "\n".join(drawn[1].problems)
    assert "broken, panel 9 (How much fails?): nothing to show" in found
    assert "broken, panel 10 (How much dies?): " in found
    assert "parse error" in found
    assert "panel 11" not in found
