"""Panels and columns that several dashboards have alike, so that whoever knows one knows them all."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.generator import queries as q
from dashboards.generator.panels import (
    FALLS_BEHIND,
    SHARE_OF_PERIOD,
    STATUS,
    Column,
    Panel,
    chart,
    named,
    rows,
)

NO_TROUBLE = "No check reports trouble"


def findings(
    number: int,
    title: str,
    description: str,
    *,
    check_width: int = 180,
    since_width: int = 130,
    consumer_link: str = "pgque-consumer",
) -> Panel:
    """A table of the checks that aren't ok, the worst first."""
    return rows(
        number,
        title,
        description,
        [
            Column("State", expr=q.FINDINGS, mappings=named(STATUS), width=90),
            Column("Check", "check", width=check_width),
            Column("Queue", "queue", link="pgque-queue"),
            Column("Consumer", "consumer", link=consumer_link),
            Column("Database", "database"),
            Column("Since", expr=q.SINCE_OK, unit="s", decimals=0, width=since_width, none="before"),
        ],
        sort_by="State",
        no_value=NO_TROUBLE,
    )


def troubles(number: int, title: str) -> Panel:
    """How many checks of each queue are at warning or critical, over time."""
    return chart(
        number,
        title,
        "Checks at critical or warning, by queue.",
        {"{{queue}} {{state}}": q.TROUBLES},
        states=True,
        decimals=0,
        colours={"critical$": "red", "warning$": "orange"},
        narrow=True,
        no_value=NO_TROUBLE,
    )


def velocity(number: int, description: str, queries: Mapping[str, str]) -> Panel:
    """Whether consumers catch up or fall further behind."""
    return chart(
        number,
        "Is it getting better?",
        description,
        queries,
        "suffix:s/s",
        steps=FALLS_BEHIND,
        least=None,
        decimals=2,
        min_interval="1m",
    )


def of_rotation_period(width: int) -> Column:
    """How much of the rotation period a consumer lags behind, as a bar."""
    return Column(
        "Of the rotation period",
        expr=q.PERIOD_USED,
        unit="percentunit",
        decimals=0,
        steps=SHARE_OF_PERIOD,
        bar=1,
        width=width,
    )
