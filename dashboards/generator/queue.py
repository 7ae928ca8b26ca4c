"""One queue, or some: what comes in, what goes out, who doesn't keep up?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    CAUTION_ABOVE_ZERO,
    FALLS_BEHIND,
    STATUS,
    YES_NO,
    Column,
    chart,
    named,
    never,
    rows,
    stat_panel,
)
from dashboards.generator.parts import of_rotation_period, troubles


def build() -> Dashboard:
    return page(
        "pgque-queue",
        "PgQue / Queue",
        "One queue, or some: what comes in, what goes out, who doesn't keep up, since when?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "State",
                        "Worst check of the queues on show and of their consumers.",
                        f"max({q.QUEUE_STATUS})",
                        mappings=named(STATUS),
                        no_value="unknown",
                    ),
                    stat_panel(
                        2,
                        "Events waiting",
                        "Events that the slowest consumer of each queue still has to process (upper bound).",
                        f"sum({q.DEPTH})",
                    ),
                    stat_panel(
                        3,
                        "Oldest event waits for",
                        "Age of the oldest event that some consumer still has to process;"
                        " 0 when nothing is pending.",
                        f"max({q.queue('pgque_queue_oldest_message_age_seconds')})",
                        "s",
                    ),
                    stat_panel(
                        4,
                        "Sent",
                        "Events sent per second, redelivered ones included.",
                        f"sum({q.SENT})",
                        "eps",
                        decimals=1,
                    ),
                    stat_panel(
                        5,
                        "Worked off",
                        "Events per second that the slowest consumer of each queue finishes.",
                        f"sum(min by ({q.BY_QUEUE}) ({q.ACKED}))",
                        "eps",
                        decimals=1,
                    ),
                    stat_panel(
                        6,
                        "Paused",
                        "Is the ticker of a queue on show paused by configuration? What is sent then waits.",
                        f"max({q.queue('pgque_queue_paused')})",
                        mappings=named(YES_NO),
                        no_value="not reported",
                    ),
                ],
            ),
            Row(
                8,
                [
                    rows(
                        7,
                        "Which consumer doesn't keep up?",
                        "Every consumer of the queues on show. Lag grows by 1 second a second where nothing"
                        " is worked off. Of the rotation period: a consumer that lags behind for all of it"
                        " blocks rotation.",
                        [
                            Column("Queue", "queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column("State", expr=q.CONSUMER_STATUS, mappings=named(STATUS), width=90),
                            Column("Pending", expr=q.PENDING, decimals=0, width=90),
                            Column("Worked off", expr=q.ACKED, unit="eps", decimals=1, width=110),
                            Column("Lag", expr=q.LAG, unit="s", width=110),
                            Column(
                                "Lag grows by",
                                expr=q.GROWTH,
                                unit="suffix:s/s",
                                decimals=2,
                                steps=FALLS_BEHIND,
                                width=120,
                            ),
                            Column(
                                "Catches up in",
                                expr=q.CATCHES_UP,
                                unit="s",
                                mappings=never("not at this pace", "red"),
                                width=140,
                            ),
                            of_rotation_period(200),
                        ],
                        sort_by="Lag",
                    )
                ],
            ),
            Row(
                9,
                [
                    chart(
                        8,
                        "How much is waiting?",
                        "Events that the slowest consumer still has to process (upper bound).",
                        {"{{queue}}": q.DEPTH},
                    ),
                    chart(
                        9,
                        "How long does the oldest event wait?",
                        "Age of the oldest event that some consumer still has to process.",
                        {"{{queue}}": q.queue("pgque_queue_oldest_message_age_seconds")},
                        "s",
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        10,
                        "Does as much go out as comes in?",
                        "Events sent, and events finished by each consumer: a consumer below what is sent"
                        " falls behind.",
                        {"{{queue}} sent": q.SENT, "{{queue}} / {{consumer}}": q.ACKED},
                        "eps",
                        colours={" sent$": "text"},
                    ),
                    chart(
                        11,
                        "Does the backlog grow?",
                        "Events by which the backlog of each queue grows (above 0) or shrinks (below 0) in a"
                        " second.",
                        {
                            "{{queue}}": f"max by ({q.BY_QUEUE})"
                            f" (deriv(pgque_queue_depth{{{q.QUEUE}}}[$__rate_interval]))"
                        },
                        "eps",
                        least=None,
                        decimals=2,
                        min_interval="1m",
                    ),
                ],
            ),
            Row(
                9,
                [
                    troubles(12, "Which checks aren't ok, and when?"),
                    chart(
                        13,
                        "How much comes with each tick?",
                        "Events per second between the last two ticks; no line while the ticker is late.",
                        {"{{queue}}": q.queue("pgque_queue_throughput")},
                        "eps",
                        narrow=True,
                    ),
                    chart(
                        14,
                        "What fails?",
                        "Events that wait in the retry queue, and dead letters (each counted up to 2,000"
                        " a queue).",
                        {
                            "{{queue}} retries": q.queue("pgque_message_retry_waiting"),
                            "{{queue}} dead letters": q.queue("pgque_message_dead_lettered"),
                        },
                        steps=CAUTION_ABOVE_ZERO[:1],
                        no_value="Neither is reported",
                        narrow=True,
                    ),
                ],
            ),
        ],
    )
