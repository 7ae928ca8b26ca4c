"""What is true of every dashboard's file, without running anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pgque_exporter.catalogue import load
from tests.alerts.documents import recorded
from tests.support.dashboards import FOLDER, Board, boards
from tests.support.series import exported

UIDS = {
    "pgque-overview",
    "pgque-queue",
    "pgque-consumer",
    "pgque-ticker-rotation",
    "pgque-dead-letters-retries",
    "pgque-exporter-delivery",
    "pgque-slo",
    "pgque-history",
}
VARIABLES = ["datasource", "database", "queue", "consumer"]
# Prometheus makes these of every scrape and of every rule.
OF_PROMETHEUS = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "ALERTS"}
OF_GRAFANA = {"__interval", "__range", "__rate_interval"}

each_board = pytest.mark.parametrize("board", boards(), ids=lambda board: board.uid)


def known_series() -> set[str]:
    """Names of all series that the service exports or a rule records."""
    return OF_PROMETHEUS | exported() | recorded().keys()


def series_in(expr: str) -> set[str]:
    """Names of series that an expression selects."""
    without_strings = re.sub(r'"[^"]*"', '""', expr)
    selected = re.findall(r"([a-zA-Z_:][\w:]*)\s*[{\[]", without_strings)
    return {*selected, *re.findall(r"\bpgque[\w:]*", without_strings)}


def links_in(value: Any) -> Iterator[str]:
    """Every URL within a dashboard."""
    if isinstance(value, dict):
        if isinstance(value.get("url"), str) and value["url"]:
            yield value["url"]
        for part in value.values():
            yield from links_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from links_in(part)


def test_the_dashboards_that_alerts_and_documents_link_to_are_there() -> None:
    found = {board.path.stem: board.uid for board in boards()}
    assert found == {uid: uid for uid in found}
    assert set(found) >= UIDS


@each_board
def test_it_is_read_only_and_carries_what_all_carry(board: Board) -> None:
    assert board.json["editable"] is False
    assert board.json["tags"] == ["pgque"]
    assert board.json["description"]
    assert "id" not in board.json
    assert "__inputs" not in board.json
    assert [variable["name"] for variable in board.variables] == VARIABLES
    for variable in board.variables[1:]:
        assert variable["multi"], variable["name"]
        assert variable["includeAll"], variable["name"]
        assert variable["datasource"]["uid"] == "${datasource}"
    (link,) = board.json["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["pgque"])
    assert link["includeVars"]
    assert link["keepTime"]
    assert any("ALERTS{" in note["expr"] for note in board.json["annotations"]["list"])


@each_board
def test_every_panel_says_what_it_shows_and_in_what_unit(board: Board) -> None:
    silent = [panel["id"] for panel in board.panels if not panel["title"] or not panel["description"]]
    assert silent == []
    with_data = [panel for panel in board.panels if panel["type"] != "text"]
    assert [panel["title"] for panel in with_data if not panel["fieldConfig"]["defaults"].get("unit")] == []
    assert [panel["title"] for panel in with_data if panel["datasource"]["uid"] != "${datasource}"] == []


@each_board
def test_panels_have_numbers_of_their_own_and_do_not_overlap(board: Board) -> None:
    numbers = Counter(panel["id"] for panel in board.json["panels"])
    assert [number for number, times in numbers.items() if times > 1] == []
    cells = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in board.json["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert [cell for cell, times in cells.items() if times > 1] == []
    rows = {y for _, y in cells}
    assert cells.keys() == {(x, y) for x in range(24) for y in rows}, "a row has a hole"
    assert rows == set(range(len(rows)))


@each_board
def test_it_names_only_series_that_exist(board: Board) -> None:
    known = known_series()
    unknown = {
        question.where: names - known
        for question in (*board.questions(), *board.asides())
        if (names := series_in(question.expr)) - known
    }
    assert unknown == {}


@each_board
def test_it_asks_for_the_variables_that_it_has_and_for_no_fixed_window(board: Board) -> None:
    for question in (*board.questions(), *board.asides()):
        asked = set(re.findall(r"\$(\w+)", question.expr))
        assert asked <= {*VARIABLES, *OF_GRAFANA}, question.where
        windows = re.findall(r"\[([^\]]*)\]", question.expr)
        allowed = {"$__rate_interval", "$__range", "$__range:$__interval"}
        assert set(windows) <= allowed, question.where


@each_board
def test_legends_name_labels_that_their_series_have(board: Board) -> None:
    for panel in board.panels:
        for target in panel.get("targets", ()):
            for label in re.findall(r"{{\s*(\w+)\s*}}", target.get("legendFormat", "")):
                assert re.search(rf"\b{label}\b", target["expr"]), (panel["title"], label)


@each_board
def test_links_lead_to_dashboards_with_the_variables_that_they_set(board: Board) -> None:
    there = {other.uid: {variable["name"] for variable in other.variables} for other in boards()}
    for url in links_in(board.json):
        uid = re.fullmatch(r"/d/([\w-]+)\?.*", url)
        assert uid, url
        assert uid[1] in there, url
        assert set(re.findall(r"var-(\w+)=", url)) <= there[uid[1]], url
        assert "${__url_time_range}" in url
        assert "${datasource:queryparam}" in url


@each_board
def test_links_of_a_row_name_columns_of_their_table(board: Board) -> None:
    for panel in board.panels:
        if panel["type"] != "table":
            continue
        headers = set(panel["transformations"][-1]["options"]["renameByName"].values())
        for url in links_in(panel):
            assert set(re.findall(r"__data\.fields\.(\w+)", url)) <= headers, panel["title"]


def test_every_metric_of_queues_and_of_the_service_is_on_some_dashboard() -> None:
    shown = {
        name for board in boards() for question in board.questions() for name in series_in(question.expr)
    }
    missing = [
        metric.name for metric in load() if not any(name.startswith(metric.prometheus_name) for name in shown)
    ]
    assert missing == []


def test_what_is_mounted_finds_the_dashboards() -> None:
    provider = yaml.safe_load((FOLDER / "dashboards" / "pgque.yaml").read_text("utf-8"))["providers"][0]
    assert provider["type"] == "file"
    assert provider["allowUiUpdates"] is False
    readme = (FOLDER.parent / "README.md").read_text("utf-8")
    assert f"dashboards/grafana:{provider['options']['path']}" in readme
    source = yaml.safe_load((FOLDER / "datasources" / "pgque.yaml").read_text("utf-8"))["datasources"][0]
    assert source["type"] == "prometheus"
    variable = source["url"].removeprefix("$")
    assert f"-e {variable}=" in readme


@each_board
def test_a_stat_that_knows_nothing_is_grey(board: Board) -> None:
    """Grafana would give it the colour of the lowest threshold, which often says that all is well."""
    grey = set()
    for panel in board.panels:
        if panel["type"] == "stat":
            (unknown,) = (m for m in panel["fieldConfig"]["defaults"]["mappings"] if m["type"] == "special")
            assert unknown["options"]["match"] == "null+nan", panel["title"]
            grey.add(unknown["options"]["result"]["color"])
    assert len(grey) == 1
