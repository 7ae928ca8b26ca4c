"""Do ticks come, do tables rotate, and how long until somebody blocks that?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    GOOD_IS_ZERO,
    SECONDS_LEFT,
    SHARE_OF_PERIOD,
    STATUS,
    YES_NO,
    Column,
    chart,
    named,
    never,
    rows,
    stat_panel,
)
from dashboards.generator.parts import of_rotation_period

TICK_AGE = q.queue("pgque_ticker_last_tick_age_seconds")
ROTATION_AGE = q.queue("pgque_queue_rotation_age_seconds")
NO_ROTATION = "No rotation is reported"


def build() -> Dashboard:
    return page(
        "pgque-ticker-rotation",
        "PgQue / Ticker and rotation",
        "Do ticks come, do tables rotate, and how long until a consumer blocks that?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "Stalled tickers",
                        "Queues whose ticks don't come, so that consumers see nothing new.",
                        q.troubled("ticker_running"),
                        steps=GOOD_IS_ZERO,
                    ),
                    stat_panel(
                        2,
                        "Oldest last tick",
                        "Time since the last tick of the queue that ticks least. Idle queues tick only once"
                        " per idle period.",
                        f"max({TICK_AGE})",
                        "s",
                    ),
                    stat_panel(
                        3,
                        "Paused queues",
                        "Queues whose ticker is paused by configuration.",
                        f"sum({q.queue('pgque_queue_paused')})",
                    ),
                    stat_panel(
                        4,
                        "Rotation blockers",
                        "Consumers that lag behind for longer than the rotation period of their queue.",
                        q.count(f"({q.PERIOD_USED})", ">= bool 1"),
                        steps=GOOD_IS_ZERO,
                        no_value="not reported",
                    ),
                    stat_panel(
                        5,
                        "Rotation overdue",
                        "Queues that should have rotated long since. Their tables grow.",
                        q.troubled("rotation_health"),
                        steps=GOOD_IS_ZERO,
                        no_value="not reported",
                    ),
                    stat_panel(
                        6,
                        "Next to block rotation in",
                        "When the next consumer will block rotation, if its lag goes on growing as now;"
                        " those that block it already are left out.",
                        f"min(({q.UNTIL_BLOCKED}) > 0)",
                        "s",
                        steps=SECONDS_LEFT,
                        mappings=never("not in sight", "green"),
                        no_value="not reported",
                    ),
                ],
            ),
            Row(
                8,
                [
                    rows(
                        7,
                        "How long until rotation is blocked, and by whom?",
                        "A consumer that lags behind for longer than the rotation period keeps the queue's"
                        " tables from being emptied. Blocks in: if its lag goes on growing as now.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column("Lag", expr=q.LAG, unit="s", width=110),
                            Column(
                                "Rotation period",
                                expr=f"{q.LAG} * 0 + on ({q.BY_QUEUE}) group_left () {q.PERIOD}",
                                unit="s",
                                width=140,
                            ),
                            of_rotation_period(260),
                            Column(
                                "Blocks in",
                                expr=q.UNTIL_BLOCKED,
                                unit="s",
                                steps=SECONDS_LEFT,
                                mappings=never("not in sight", "green", at_zero=("blocks now", "red")),
                                width=150,
                            ),
                        ],
                        sort_by="Of the rotation period",
                        no_value=NO_ROTATION,
                    )
                ],
            ),
            Row(
                9,
                [
                    chart(
                        8,
                        "Do ticks come?",
                        "Time since each queue's last tick, and how long pg_cron's last run of ticker() took,"
                        " where pg_cron drives the engine.",
                        {
                            "{{queue}}": TICK_AGE,
                            "pg_cron run in {{database}}": "max by (engine, database)"
                            f" (pgque_ticker_duration_seconds{{{q.DATABASE}}})",
                        },
                        "s",
                        narrow=True,
                    ),
                    chart(
                        9,
                        "What waits for the next tick?",
                        "Events sent since the last tick (upper bound).",
                        {"{{queue}}": q.queue("pgque_queue_unticked_events")},
                        narrow=True,
                    ),
                    chart(
                        10,
                        "Who is paused, and when?",
                        "1 while a queue's ticker is paused by configuration.",
                        {"{{queue}}": q.queue("pgque_queue_paused")},
                        states=True,
                        most=1,
                        decimals=0,
                        narrow=True,
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        11,
                        "Do tables rotate?",
                        "Time since the last rotation, in rotation periods: above 2 it is overdue.",
                        {"{{queue}}": f"{ROTATION_AGE} / {q.PERIOD}"},
                        "suffix:periods",
                        decimals=1,
                        steps=((None, "green"), (2, "orange")),
                        no_value=NO_ROTATION,
                    ),
                    chart(
                        12,
                        "Who comes near to blocking rotation?",
                        "Lag as a share of the queue's rotation period: at 100 % the consumer blocks it."
                        " Drawn up to 200 %.",
                        {"{{queue}} / {{consumer}}": f"clamp_max({q.PERIOD_USED}, 2)"},
                        "percentunit",
                        decimals=0,
                        steps=SHARE_OF_PERIOD,
                        no_value=NO_ROTATION,
                    ),
                ],
            ),
            Row(
                8,
                [
                    rows(
                        13,
                        "How is each queue driven?",
                        "Ticks and rotation of every queue.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Database", "database"),
                            Column("Engine", "engine"),
                            Column("State", expr=q.QUEUE_STATUS, mappings=named(STATUS)),
                            Column(
                                "Paused",
                                expr=q.queue("pgque_queue_paused"),
                                mappings=named(YES_NO),
                            ),
                            Column("Last tick", expr=TICK_AGE, unit="s", decimals=1),
                            Column("Unticked", expr=q.queue("pgque_queue_unticked_events"), decimals=0),
                            Column("Last rotation", expr=ROTATION_AGE, unit="s", decimals=1),
                            Column("Rotation period", expr=q.PERIOD, unit="s"),
                            Column("Consumers", expr=q.queue("pgque_queue_consumers"), decimals=0),
                        ],
                        sort_by="Last tick",
                    )
                ],
            ),
        ],
    )
