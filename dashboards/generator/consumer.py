"""One consumer, or some: does it live, does it keep up, what is it at?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    FALLS_BEHIND,
    SHARE_OF_PERIOD,
    STATUS,
    chart,
    named,
    never,
    stat_panel,
)
from dashboards.generator.parts import findings, velocity

UNINSTRUMENTED = "Not reported: it needs the pack's instrumentation"


def build() -> Dashboard:
    consumer = "{{queue}} / {{consumer}}"
    return page(
        "pgque-consumer",
        "PgQue / Consumer",
        "One consumer, or some: does it live, does it keep up, what is it at?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "State",
                        "Worst check of the consumers on show.",
                        f"max({q.CONSUMER_STATUS})",
                        mappings=named(STATUS),
                        no_value="unknown",
                    ),
                    stat_panel(
                        2,
                        "Greatest lag",
                        "How far the slowest of them is behind in time; 0 when nothing is pending.",
                        f"max({q.LAG})",
                        "s",
                    ),
                    stat_panel(
                        3,
                        "Lag grows by",
                        "Seconds of lag that are added in a second, of the one that falls behind most:"
                        " 1 stands still, below 0 catches up. 0 where nobody is ten seconds behind.",
                        f"max({q.GROWTH}) or max({q.LAG}) * 0",
                        "suffix:s/s",
                        steps=FALLS_BEHIND,
                        decimals=2,
                    ),
                    stat_panel(
                        4,
                        "All have caught up in",
                        "At the pace of this moment. Who is less than ten seconds behind has caught up.",
                        f"max({q.CATCHES_UP}) or max({q.LAG}) * 0",
                        "s",
                        mappings=never("not at this pace", "red", at_zero=("caught up", "green")),
                    ),
                    stat_panel(
                        5,
                        "Silent for",
                        "Time since the most silent of them last took or finished a batch. On an idle queue"
                        " that is no trouble.",
                        f"max({q.consumer('pgque_consumer_idle_seconds')})",
                        "s",
                    ),
                    stat_panel(
                        6,
                        "Failed",
                        "Share of the events handled that went to retry.",
                        f"sum({q.consumer_rate('pgque_message_nacked_total')}) / (sum({q.ACKED}) > 0)",
                        "percentunit",
                        decimals=1,
                        no_value="not reported",
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        7,
                        "How far behind is it?",
                        "Lag in time.",
                        {consumer: q.LAG},
                        "s",
                    ),
                    velocity(
                        8,
                        "Seconds of lag that are added in a second: 1 stands still, 0 keeps its distance,"
                        " below 0 catches up.",
                        {consumer: q.VELOCITY},
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        9,
                        "How much does it have before it?",
                        "Events that it still has to process, its open batch and unticked ones included"
                        " (upper bound).",
                        {
                            consumer: q.PENDING,
                            f"{consumer}: open batch": q.consumer("pgque_consumer_open_batch_events"),
                        },
                    ),
                    chart(
                        10,
                        "How much does it get done?",
                        "Events of the batches that it finished, per second.",
                        {consumer: q.ACKED},
                        "eps",
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        11,
                        "Does it hang in a batch?",
                        "Time since its oldest open batch was taken; no line while none is open.",
                        {consumer: q.consumer("pgque_consumer_open_batch_age_seconds")},
                        "s",
                        no_value="No open batch is reported",
                        narrow=True,
                    ),
                    chart(
                        12,
                        "Does it live?",
                        "Time since it last took or finished a batch.",
                        {consumer: q.consumer("pgque_consumer_idle_seconds")},
                        "s",
                        narrow=True,
                    ),
                    chart(
                        13,
                        "How near is it to blocking rotation?",
                        "Share of the rotation period that it lags behind: at 50 % a warning, at 100 % it"
                        " blocks rotation. Drawn up to 200 %.",
                        {consumer: f"clamp_max({q.PERIOD_USED}, 2)"},
                        "percentunit",
                        steps=SHARE_OF_PERIOD,
                        no_value="No rotation is reported",
                        narrow=True,
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        14,
                        "How long does a batch take?",
                        "Time from a batch being taken to being finished: the slowest of a hundred, and half"
                        " of them.",
                        {
                            f"{consumer} p99": q.quantile(0.99, "pgque_processing_latency_seconds"),
                            f"{consumer} p50": q.quantile(0.5, "pgque_processing_latency_seconds"),
                        },
                        "s",
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                    chart(
                        15,
                        "How large are its batches?",
                        "Events per finished batch, on average.",
                        {
                            consumer: f"{q.consumer_rate('pgque_batch_size_sum')}"
                            f" / ({q.consumer_rate('pgque_batch_size_count')} > 0)"
                        },
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                    chart(
                        16,
                        "How much of it fails?",
                        "Share of the events handled that went to retry.",
                        {consumer: q.FAILING},
                        "percentunit",
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                ],
            ),
            Row(
                7,
                [
                    findings(
                        17,
                        "What is wrong, and since when?",
                        "Every check of these consumers and their queues that isn't ok.",
                        consumer_link="",
                    )
                ],
            ),
        ],
    )
