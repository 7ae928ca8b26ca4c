"""What is dying, whose is it, and why?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    CAUTION_ABOVE_ZERO,
    Column,
    Steps,
    chart,
    rows,
    stat_panel,
    words,
)
from dashboards.generator.parts import findings

UNINSTRUMENTED = "Not reported: it needs the pack's instrumentation"
NONE_KEPT = "None are reported"
SHARE: Steps = ((None, "green"), (0.05, "orange"), (0.2, "red"))
RETRIES = q.queue("pgque_message_retry_waiting")
LETTERS = q.queue("pgque_message_dead_lettered")

# Metrics count; reasons stand in the database alone, as they may tell of payloads.
WHY = """\
Reasons stay in the database and never become metrics. Ask there, with the name of the queue:

```sql
-- Which reasons are the most frequent? (pgque_reader)
select dl_reason, count(*), max(dl_time) as last
from pgque.dlq_inspect('webhooks', 1000)
group by dl_reason order by count(*) desc;

-- When did it begin? (pgque_monitor)
select * from pgque.error_rate('webhooks', '1 hour', '1 minute');

-- The cause is mended: send them again. (pgque_admin)
select pgque.dlq_replay_all('webhooks');
```
"""


def build() -> Dashboard:
    consumer = "{{queue}} / {{consumer}}"
    return page(
        "pgque-dead-letters-retries",
        "PgQue / Dead letters and retries",
        "What is dying, whose is it, and why?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "Retries waiting",
                        "Events that wait for their next delivery (counted up to 2,000 a queue).",
                        f"sum({RETRIES})",
                        no_value="not reported",
                    ),
                    stat_panel(
                        2,
                        "Retries overdue",
                        "Queues with retries whose time has come, and which nobody brings back.",
                        q.troubled("retry_overdue"),
                        steps=CAUTION_ABOVE_ZERO,
                        no_value="not reported",
                    ),
                    stat_panel(
                        3,
                        "Failed",
                        "Share of the events handled that went to retry.",
                        f"sum({q.consumer_rate('pgque_message_nacked_total')}) / (sum({q.ACKED}) > 0)",
                        "percentunit",
                        steps=SHARE,
                        decimals=1,
                        no_value="not reported",
                    ),
                    stat_panel(
                        4,
                        "Dead letters",
                        "Events given up on, and neither replayed nor purged (counted up to 2,000 a queue).",
                        f"sum({LETTERS})",
                        steps=CAUTION_ABOVE_ZERO,
                        no_value="not reported",
                    ),
                    stat_panel(
                        5,
                        "Died in the time on show",
                        "Events that consumers gave up on in the time on show, replayed ones included.",
                        f"sum({q.consumer_increase('pgque_message_dead_lettered_total')})",
                        decimals=0,
                        no_value="not reported",
                    ),
                    stat_panel(
                        6,
                        "Queues with too many",
                        "Queues whose check of dead letters is at warning or critical.",
                        q.troubled("dlq_health"),
                        steps=CAUTION_ABOVE_ZERO,
                        no_value="not reported",
                    ),
                ],
            ),
            Row(
                9,
                [
                    rows(
                        7,
                        "What is dying?",
                        "Every consumer, with what failed in the time on show. Failed: the share of the"
                        " events handled that went to retry, at this moment.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column(
                                "To retry",
                                expr=q.consumer_increase("pgque_message_nacked_total"),
                                decimals=0,
                                width=100,
                            ),
                            Column(
                                "Redelivered",
                                expr=q.consumer_increase("pgque_message_redelivered_total"),
                                decimals=0,
                                width=110,
                            ),
                            Column(
                                "Died",
                                expr=q.consumer_increase("pgque_message_dead_lettered_total"),
                                decimals=0,
                                steps=CAUTION_ABOVE_ZERO,
                                width=90,
                            ),
                            Column(
                                "Failed",
                                expr=q.FAILING,
                                unit="percentunit",
                                decimals=0,
                                steps=SHARE,
                                bar=1,
                                width=170,
                            ),
                        ],
                        sort_by="Failed",
                        no_value=UNINSTRUMENTED,
                    ),
                    words(8, "And why?", "How to ask the database for the reasons.", WHY),
                ],
                widths=[15, 9],
            ),
            Row(
                9,
                [
                    chart(
                        9,
                        "How much fails?",
                        "Events per second that consumers sent to retry.",
                        {consumer: q.consumer_rate("pgque_message_nacked_total")},
                        "eps",
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                    chart(
                        10,
                        "How much dies?",
                        "Events per minute that consumers gave up on.",
                        {consumer: f"{q.consumer_rate('pgque_message_dead_lettered_total')} * 60"},
                        "suffix:/min",
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                    chart(
                        11,
                        "Does it fail more than it used to?",
                        "Share of the events handled that went to retry.",
                        {consumer: q.FAILING},
                        "percentunit",
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        12,
                        "What waits to be tried again?",
                        "Events in the retry queue (counted up to 2,000).",
                        {"{{queue}}": RETRIES},
                        no_value=NONE_KEPT,
                        narrow=True,
                    ),
                    chart(
                        13,
                        "How many dead letters are there?",
                        "Dead letters (counted up to 2,000); falls when they are replayed or purged.",
                        {"{{queue}}": LETTERS},
                        no_value=NONE_KEPT,
                        narrow=True,
                    ),
                    chart(
                        14,
                        "What becomes of dead letters?",
                        "Dead letters per minute that were sent again, and that were deleted for good.",
                        {
                            "{{queue}} replayed": f"{q.queue_rate('pgque_message_replayed_total')} * 60",
                            "{{queue}} purged": f"{q.queue_rate('pgque_message_purged_total')} * 60",
                        },
                        "suffix:/min",
                        most=1,
                        no_value=UNINSTRUMENTED,
                        narrow=True,
                    ),
                ],
            ),
            Row(
                7,
                [
                    findings(
                        15,
                        "Which checks aren't ok, and since when?",
                        "Every check of the queues on show, and of their consumers, that isn't ok.",
                    )
                ],
            ),
        ],
    )
