"""Is anything on fire, where, since when, and is it getting better?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    CAUTION_ABOVE_ZERO,
    FALLS_BEHIND,
    GOOD_IS_ZERO,
    STATUS,
    Column,
    chart,
    named,
    never,
    rows,
    stat_panel,
)
from dashboards.generator.parts import findings, troubles, velocity

# What several dashboards show in a table of consumers or queues.
CATCHES_UP = never("not at this pace", "red")


def build() -> Dashboard:
    return page(
        "pgque-overview",
        "PgQue / Overview",
        "All queues of all databases: is anything on fire, where, since when, is it getting better?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "Unreachable databases",
                        "Databases whose last poll failed. Their queues are unknown, not well.",
                        q.count(q.database("pgque_up"), "== bool 0"),
                        steps=GOOD_IS_ZERO,
                    ),
                    stat_panel(
                        2,
                        "Critical queues",
                        "Queues of which some check, or one of a consumer of theirs, is critical.",
                        q.count(q.QUEUE_STATUS, "== bool 2"),
                        steps=GOOD_IS_ZERO,
                    ),
                    stat_panel(
                        3,
                        "Queues with a warning",
                        "Queues of which the worst check is at warning.",
                        q.count(q.QUEUE_STATUS, "== bool 1"),
                        steps=CAUTION_ABOVE_ZERO,
                    ),
                    stat_panel(
                        4,
                        "Greatest lag",
                        "How far the consumer that is furthest behind is behind in time.",
                        f"max({q.LAG})",
                        "s",
                    ),
                    stat_panel(
                        5,
                        "Events waiting",
                        "Events that the slowest consumer of each queue still has to process,"
                        " all queues together.",
                        f"sum({q.DEPTH})",
                    ),
                    stat_panel(
                        6,
                        "Dead letters",
                        "Events that consumers gave up on and that nobody has replayed or purged"
                        " (counted up to 2,000 a queue).",
                        f"sum({q.queue('pgque_message_dead_lettered')})",
                        steps=CAUTION_ABOVE_ZERO,
                        no_value="not reported",
                    ),
                ],
            ),
            Row(
                8,
                [
                    findings(
                        7,
                        "What is wrong, and since when?",
                        "Every check that isn't ok. Since when: how long ago it was ok for the last time,"
                        " if that was within the time on show.",
                        check_width=150,
                        since_width=110,
                    ),
                    troubles(8, "Which queue is in trouble, and when?"),
                ],
                widths=[14, 10],
            ),
            Row(
                9,
                [
                    rows(
                        9,
                        "How is each queue doing?",
                        "Every queue with its slowest consumer. Of those more than ten seconds behind, lag"
                        " grows by: seconds of lag that are added in a second, where 1 means that nothing"
                        " is worked off; catches up in: at the pace of this moment.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Database", "database"),
                            Column("Engine", "engine", width=90),
                            Column("State", expr=q.QUEUE_STATUS, mappings=named(STATUS), width=90),
                            Column("Waiting", expr=q.DEPTH, decimals=0, width=90),
                            Column("Sent", expr=q.SENT, unit="eps", decimals=1, width=110),
                            Column(
                                "Worked off",
                                expr=f"min by ({q.BY_QUEUE}) ({q.ACKED})",
                                unit="eps",
                                decimals=1,
                                width=110,
                            ),
                            Column("Lag", expr=f"max by ({q.BY_QUEUE}) ({q.LAG})", unit="s", width=110),
                            Column(
                                "Lag grows by",
                                expr=f"max by ({q.BY_QUEUE}) ({q.GROWTH})",
                                unit="suffix:s/s",
                                decimals=2,
                                steps=FALLS_BEHIND,
                                width=120,
                            ),
                            Column(
                                "Catches up in",
                                expr=f"max by ({q.BY_QUEUE}) ({q.CATCHES_UP})",
                                unit="s",
                                mappings=CATCHES_UP,
                                width=140,
                            ),
                            Column(
                                "Retries",
                                expr=q.queue("pgque_message_retry_waiting"),
                                width=90,
                                decimals=0,
                            ),
                            Column(
                                "Dead letters",
                                expr=q.queue("pgque_message_dead_lettered"),
                                width=110,
                                decimals=0,
                            ),
                        ],
                        sort_by="Lag",
                    )
                ],
            ),
            Row(
                9,
                [
                    chart(
                        10,
                        "Which consumers are behind?",
                        "Lag in time, of the ten consumers that are furthest behind.",
                        {"{{queue}} / {{consumer}}": f"topk(10, {q.LAG})"},
                        "s",
                    ),
                    velocity(
                        11,
                        "Seconds of lag that are added in a second, of the ten worst: 1 stands still, 0 keeps"
                        " its distance, below 0 catches up.",
                        {"{{queue}} / {{consumer}}": f"topk(10, {q.VELOCITY})"},
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        12,
                        "How much is waiting?",
                        "Events that the slowest consumer still has to process, of the ten longest queues"
                        " (upper bound).",
                        {"{{queue}}": f"topk(10, {q.DEPTH})"},
                    ),
                    chart(
                        13,
                        "How much is sent?",
                        "Events sent to the ten busiest queues. Redelivered ones count again.",
                        {"{{queue}}": f"topk(10, {q.SENT})"},
                        "eps",
                        stacked=True,
                    ),
                ],
            ),
        ],
    )
