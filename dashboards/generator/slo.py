"""Is the promise of fresh events kept, and how fast is its error budget spent?

Recorded by the rules in alerts/rules: an event is fresh while its consumer's lag is below a threshold.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import Column, Steps, chart, rows, stat_panel

NO_RULES = "Not recorded: it needs the rules in alerts/rules"
BUDGET: Steps = ((None, "red"), (0, "orange"), (0.25, "green"))
BURN: Steps = ((None, "green"), (1, "orange"), (14.4, "red"))
KEPT: Steps = ((None, "red"), (0.95, "orange"), (0.99, "green"))


def _recorded(name: str) -> str:
    return q.consumer(f"pgque:slo_freshness:{name}")


def _good(window: str) -> str:
    return _recorded(f"good_ratio_{window}")


ALLOWED = f"(1 - {_recorded('objective')})"
MONTH = _good("30d")


def _burn(window: str) -> str:
    """Error budgets spent at once: 1 spends a month's budget in a month."""
    return f"(1 - {_good(window)}) / {ALLOWED}"


LEFT = f"clamp_min(1 - (1 - {MONTH}) / {ALLOWED}, -1)"  # twice the budget is as bad as it gets


def build() -> Dashboard:
    consumer = "{{queue}} / {{consumer}}"
    return page(
        "pgque-slo",
        "PgQue / Freshness SLO",
        "Is the promise of fresh events kept, and how fast is its error budget spent?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "Promised",
                        "Share of the time in which a consumer's lag is to be below its threshold;"
                        " the strictest of those on show.",
                        f"max({_recorded('objective')})",
                        "percentunit",
                        no_value="not recorded",
                    ),
                    stat_panel(
                        2,
                        "Kept by the worst",
                        "Share of the last 30 days in which the worst consumer's events were fresh.",
                        f"min({MONTH})",
                        "percentunit",
                        steps=KEPT,
                        no_value="not recorded",
                        decimals=2,
                    ),
                    stat_panel(
                        3,
                        "Budget left to the worst",
                        "What is left of the 30 days' error budget; below 0 the promise is broken."
                        " Shown down to -100 %.",
                        f"min({LEFT})",
                        "percentunit",
                        steps=BUDGET,
                        no_value="not recorded",
                        decimals=0,
                    ),
                    stat_panel(
                        4,
                        "Promises broken",
                        "Consumers whose error budget is spent.",
                        q.count(f"({LEFT})", "< bool 0"),
                        steps=((None, "green"), (1, "red")),
                        no_value="not recorded",
                    ),
                    stat_panel(
                        5,
                        "Burns fast",
                        "Consumers that spend the budget 14.4 times as fast as it may be spent, in the last"
                        " hour and in the last five minutes: 2 % of it in an hour. This pages.",
                        f"sum(({_burn('1h')} > bool 14.4) * ({_burn('5m')} > bool 14.4))",
                        steps=((None, "green"), (1, "red")),
                        no_value="not recorded",
                    ),
                    stat_panel(
                        6,
                        "Stale now",
                        "Consumers whose lag is above their threshold at this moment.",
                        f"sum({q.LAG} > bool {_recorded('threshold_seconds')})",
                        steps=((None, "green"), (1, "orange")),
                        no_value="not recorded",
                    ),
                ],
            ),
            Row(
                9,
                [
                    rows(
                        7,
                        "Who keeps the promise?",
                        "Share of the time in which each consumer's lag was below its threshold, the part of"
                        " the error budget that is left, and how fast it is spent: at 1 it lasts for the"
                        " 30 days.",
                        [
                            Column("Queue", "queue", link="pgque-queue"),
                            Column("Consumer", "consumer", link="pgque-consumer"),
                            Column("Database", "database"),
                            Column("Threshold", expr=_recorded("threshold_seconds"), unit="s", width=110),
                            Column("Lag", expr=q.LAG, unit="s", width=110),
                            *(
                                Column(
                                    f"Fresh {name}",
                                    expr=expr,
                                    unit="percentunit",
                                    decimals=2,
                                    steps=KEPT,
                                    width=120,
                                )
                                for name, expr in (
                                    ("1 hour", _good("1h")),
                                    ("1 day", _good("1d")),
                                    ("30 days", MONTH),
                                )
                            ),
                            Column("Burn 5 min", expr=_burn("5m"), decimals=1, steps=BURN, width=110),
                            Column("Burn 1 hour", expr=_burn("1h"), decimals=1, steps=BURN, width=110),
                            Column("Burn 6 hours", expr=_burn("6h"), decimals=1, steps=BURN, width=110),
                            Column(
                                "Budget left",
                                expr=LEFT,
                                unit="percentunit",
                                decimals=0,
                                steps=BUDGET,
                                width=120,
                            ),
                        ],
                        sort_by="Budget left",
                        descending=False,
                        no_value=NO_RULES,
                    )
                ],
            ),
            Row(
                9,
                [
                    chart(
                        8,
                        "How fast is the budget spent?",
                        "Burn rate over an hour: 1 spends the budget of 30 days in 30 days, 14.4 spends 2 %"
                        " of it in an hour and pages.",
                        {consumer: _burn("1h")},
                        "suffix:x",
                        decimals=1,
                        steps=BURN,
                        no_value=NO_RULES,
                    ),
                    chart(
                        9,
                        "Does it still burn?",
                        "Burn rate over five minutes, which falls soon after the trouble ends.",
                        {consumer: _burn("5m")},
                        "suffix:x",
                        decimals=1,
                        steps=BURN,
                        no_value=NO_RULES,
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        10,
                        "How much budget is left?",
                        "Part of the 30 days' error budget; below 0 the promise is broken."
                        " Drawn down to -100 %.",
                        {consumer: LEFT},
                        "percentunit",
                        least=None,
                        most=1,
                        steps=((None, "red"), (0, "green")),
                        no_value=NO_RULES,
                        narrow=True,
                    ),
                    chart(
                        11,
                        "How near is the threshold?",
                        "Lag as a share of the threshold: above 100 % time counts as bad.",
                        {consumer: f"{q.LAG} / {_recorded('threshold_seconds')}"},
                        "percentunit",
                        steps=((None, "green"), (1, "red")),
                        no_value=NO_RULES,
                        narrow=True,
                    ),
                    chart(
                        12,
                        "When was it bad?",
                        "Share of the last thirty minutes in which events were fresh.",
                        {consumer: _good("30m")},
                        "percentunit",
                        most=1,
                        no_value=NO_RULES,
                        narrow=True,
                    ),
                ],
            ),
        ],
    )
