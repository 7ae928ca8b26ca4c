"""The committed dashboards as tests and pictures see them: panels, and the questions that they ask."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.repository import ROOT

FOLDER = ROOT / "dashboards" / "grafana"


@dataclass(frozen=True)
class Question:
    """One query of a panel; `panel` is None for one of the dashboard itself (variable, annotation)."""

    where: str  # for people: dashboard, panel, query
    expr: str
    panel: int | None = None
    letter: str = ""

    def filled_in(self, values: Mapping[str, str]) -> str:
        """The query as Grafana would send it, with these values for its variables."""
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], self.expr)


@dataclass(frozen=True)
class Board:
    """One dashboard's file."""

    path: Path

    @cached_property
    def json(self) -> Any:
        return json.loads(self.path.read_text("utf-8"))

    @property
    def uid(self) -> str:
        return str(self.json["uid"])

    @property
    def panels(self) -> list[Any]:
        """All panels with something to see; rows are headings."""
        return [panel for panel in self.json["panels"] if panel["type"] != "row"]

    @property
    def variables(self) -> list[Any]:
        variables: list[Any] = self.json["templating"]["list"]
        return variables

    def questions(self) -> Iterator[Question]:
        """The queries of all panels."""
        for panel in self.panels:
            for target in panel.get("targets", ()):
                where = f"{self.uid}, panel {panel['id']} ({panel['title']}), query {target['refId']}"
                yield Question(where, target["expr"], panel["id"], target["refId"])

    def asides(self) -> Iterator[Question]:
        """The queries of annotations, and the series whose labels the variables list."""
        for annotation in self.json["annotations"]["list"]:
            yield Question(f"{self.uid}, annotation {annotation['name']}", annotation["target"]["expr"])
        for variable in self.variables:
            if variable["type"] == "query":
                series = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
                assert series, variable["query"]
                yield Question(f"{self.uid}, variable {variable['name']}", series[1])


def boards() -> list[Board]:
    """All dashboards, by name."""
    return [Board(path) for path in sorted(FOLDER.glob("*.json"))]
