"""Is this normal for this hour of the week, are promises kept, and where does it lead?

What the pipeline has published: it knows weeks, and is as old as its last run.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    SECONDS_LEFT,
    Column,
    Panel,
    Steps,
    banded,
    chart,
    rows,
    stat_panel,
)

NOT_PUBLISHED = "Not published: see docs/pipeline.md"
LAG, PENDING, DEPTH = "pgque.consumer.lag_seconds", "pgque.consumer.pending_events", "pgque.queue.depth"
SENT, ACKED = "pgque.message.sent_total", "pgque.message.acked_total"
MONTH = "672h"
HOURS = 3600

BUDGET: Steps = ((None, "red"), (0, "orange"), (0.25, "green"))
BURN: Steps = ((None, "green"), (1, "orange"), (14.4, "red"))
BEYOND: Steps = ((None, "green"), (1, "orange"), (2, "red"))
AGE: Steps = ((None, "green"), (6 * HOURS, "orange"), (48 * HOURS, "red"))


def _baseline(end: str, metric: str) -> str:
    """One end of the band of this hour, or the median: one series a queue or consumer."""
    selector = f'{q.CHECK},metric="{metric}"'
    return f"max by ({q.BY_CONSUMER}) (pgque_baseline_{end}{{{selector}}})"


def _slo(name: str, window: str) -> str:
    selector = f'{q.CHECK},window="{window}"'
    return f"max by ({q.BY_CONSUMER}, objective) (pgque_slo_{name}{{{selector}}})"


def _forecast(which: str) -> str:
    return q.consumer(f"pgque_forecast_rotation_blocked_in_{which}seconds")


# How far the lag is beyond what is usual: 1 at the upper end of the band.
OF_BAND = f"{q.LAG} / ({_baseline('high', LAG)} > 0)"
UNUSUAL = f"{q.LAG} > bool {_baseline('high', LAG)}"
LEFT = _slo("budget_left_ratio", MONTH)
BURNING = _slo("burn_rate", "24h")
BLOCKED = _forecast("")
HISTORY_AGE = "time() - max by (table) (pgque_history_as_of_timestamp_seconds)"


def _usual(number: int, title: str, description: str, now: str, metric: str, unit: str, total: str) -> Panel:
    """A figure of all on show, and the band in which it lies at this hour of the week as a rule."""
    ends = {end: f"{total}({_baseline(end, metric)})" for end in ("median", "low", "high")}
    return banded(
        number,
        title,
        description,
        {"now": f"{total}({now})", "as a rule": ends["median"]},
        ends["low"],
        ends["high"],
        unit,
        no_value=NOT_PUBLISHED,
    )


def build() -> Dashboard:
    consumer = "{{queue}} / {{consumer}}"
    return page(
        "pgque-history",
        "PgQue / History and SLO",
        "Is this normal for this hour of the week, are promises kept, and where does it lead?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "Unusual lags",
                        "Consumers whose lag is beyond the band in which it lies at this hour of the week.",
                        f"sum({UNUSUAL})",
                        steps=((None, "green"), (1, "orange")),
                        no_value="no baseline",
                    ),
                    stat_panel(
                        2,
                        "Least budget left",
                        "What is left of four weeks' error budget to the objective that has kept least; below"
                        " 0 its promise is broken.",
                        f"min({LEFT})",
                        "percentunit",
                        steps=BUDGET,
                        no_value="not published",
                        decimals=0,
                    ),
                    stat_panel(
                        3,
                        "Promises broken",
                        "Objectives of queues and consumers whose error budget of four weeks is spent.",
                        q.count(f"({LEFT})", "< bool 0"),
                        steps=((None, "green"), (1, "red")),
                        no_value="not published",
                    ),
                    stat_panel(
                        4,
                        "Rotation blocked in",
                        "When the first consumer's lag passes its queue's rotation period, at the trend of"
                        " the newest hours that were published.",
                        f"min({BLOCKED})",
                        "s",
                        steps=SECONDS_LEFT,
                        no_value="not foreseen",
                    ),
                    stat_panel(
                        5,
                        "Newest published metric",
                        "Age of the newest metric that the oldest of the published tables rests on.",
                        f"max({HISTORY_AGE})",
                        "s",
                        steps=AGE,
                        no_value="not published",
                    ),
                ],
                widths=[5, 5, 5, 5, 4],
            ),
            Row(
                8,
                [
                    _usual(
                        6,
                        "Is the lag usual?",
                        "The largest lag of the consumers on show, and the band of this hour of the week: of"
                        " several consumers its outermost ends, so choose one.",
                        q.LAG,
                        LAG,
                        "s",
                        "max",
                    ),
                    _usual(
                        7,
                        "Does as much come in as usual?",
                        "Events sent per second to the queues on show, and the bands of this hour of the week"
                        " together.",
                        q.SENT,
                        SENT,
                        "eps",
                        "sum",
                    ),
                ],
            ),
            Row(
                8,
                [
                    _usual(
                        8,
                        "Does as much wait as usual?",
                        "Events that the queues on show still have to process, and the bands of this hour of"
                        " the week together.",
                        q.DEPTH,
                        DEPTH,
                        "short",
                        "sum",
                    ),
                    _usual(
                        9,
                        "Is as much worked off as usual?",
                        "Events acknowledged per second by the consumers on show, and the bands of this hour"
                        " of the week together.",
                        q.ACKED,
                        ACKED,
                        "eps",
                        "sum",
                    ),
                ],
            ),
            Row(
                8,
                [
                    rows(
                        10,
                        "Whose lag is unusual?",
                        "Lag of each consumer, what is usual at this hour of the week, and how far it is"
                        " beyond: at 1 it is at the upper end of the band.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column("Lag", expr=q.LAG, unit="s", decimals=1, width=90),
                            Column(
                                "As a rule", expr=_baseline("median", LAG), unit="s", decimals=1, width=100
                            ),
                            Column("Up to", expr=_baseline("high", LAG), unit="s", decimals=1, width=90),
                            Column(
                                "Of the band",
                                expr=OF_BAND,
                                unit="suffix:x",
                                decimals=1,
                                steps=BEYOND,
                                width=110,
                            ),
                        ],
                        sort_by="Of the band",
                        no_value=NOT_PUBLISHED,
                    ),
                    chart(
                        11,
                        "How far beyond?",
                        "Lag as a multiple of the upper end of its band.",
                        {consumer: OF_BAND},
                        "suffix:x",
                        steps=((None, "green"), (1, "orange")),
                        narrow=True,
                        no_value=NOT_PUBLISHED,
                    ),
                ],
                widths=[14, 10],
            ),
            Row(
                9,
                [
                    rows(
                        12,
                        "Which promises are kept?",
                        "Share that has to be good and was, over four weeks, what is left of the error"
                        " budget, and how fast it was spent in the last day: at 1 it lasts for four weeks.",
                        [
                            Column("Objective", "objective", width=95),
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column(
                                "Target",
                                expr=_slo("target_ratio", MONTH),
                                unit="percentunit",
                                decimals=1,
                                width=75,
                            ),
                            Column(
                                "Kept",
                                expr=_slo("attainment_ratio", MONTH),
                                unit="percentunit",
                                decimals=2,
                                width=85,
                            ),
                            Column(
                                "Budget left",
                                expr=LEFT,
                                unit="percentunit",
                                decimals=0,
                                steps=BUDGET,
                                bar=1,
                                width=130,
                            ),
                            Column("Burns", expr=BURNING, unit="suffix:x", decimals=1, steps=BURN, width=75),
                        ],
                        sort_by="Budget left",
                        descending=False,
                        no_value=NOT_PUBLISHED,
                    ),
                    chart(
                        13,
                        "How fast is the budget spent?",
                        "Share that was bad over the share that may be, in the last day: at 1 the budget"
                        " lasts for its window.",
                        {"{{objective}}: {{queue}} {{consumer}}": f"{BURNING} > 0"},
                        "suffix:x",
                        steps=((None, "green"), (1, "orange")),
                        narrow=True,
                        no_value="Nothing is spent",
                    ),
                ],
                widths=[15, 9],
            ),
            Row(
                8,
                [
                    rows(
                        14,
                        "Who will block rotation?",
                        "When each consumer's lag passes its queue's rotation period, at the trend of the"
                        " newest hours that were published, and the ends of the trend's 95 % interval.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column("In", expr=BLOCKED, unit="s", decimals=1, steps=SECONDS_LEFT, width=95),
                            Column(
                                "At the earliest", expr=_forecast("low_"), unit="s", decimals=1, width=125
                            ),
                            Column("At the latest", expr=_forecast("high_"), unit="s", decimals=1, width=115),
                        ],
                        sort_by="In",
                        descending=False,
                        no_value="No lag is foreseen to get there",
                    ),
                    banded(
                        15,
                        "When will the first one block it?",
                        "Time until the first consumer's lag passes its queue's rotation period, and the"
                        " interval in which that is to be expected.",
                        {"in": f"min({BLOCKED})"},
                        f"min({_forecast('low_')})",
                        f"min({_forecast('high_')})",
                        "s",
                        no_value="No lag is foreseen to get there",
                    ),
                    chart(
                        16,
                        "How old is this knowledge?",
                        "Age of the newest metric that each published table rests on. Baselines are shown for"
                        " two weeks, SLOs for two days, forecasts for six hours.",
                        {"{{table}}": HISTORY_AGE},
                        "s",
                        narrow=True,
                        no_value=NOT_PUBLISHED,
                    ),
                ],
                widths=[13, 6, 5],
            ),
        ],
    )
