"""Facts for tests of the report's page: small, with everything in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pgque_pipeline.report.facts import (
    DeadLetters,
    Entity,
    Facts,
    Flow,
    Forecast,
    Gap,
    Incident,
    Incidents,
    Lag,
    Objective,
    Promise,
    Refused,
    Scope,
    Track,
    Turn,
    Week,
)

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
AS_OF = datetime(2026, 3, 30, 10, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def facts(queue: str = "billing", consumer: str = "ledger", *, generated: bool = False) -> Facts:
    """One queue with one consumer, in all kinds of trouble."""
    of_queue = Entity("pgque", "shop", queue, None)
    entity = Entity("pgque", "shop", queue, consumer)
    hours = [BEGIN + HOUR * index for index in range(672)]
    turns = [
        Turn("ok", BEGIN, BEGIN + HOUR * 100),
        Turn("critical", BEGIN + HOUR * 100, BEGIN + HOUR * 110),
        Turn("ok", BEGIN + HOUR * 120, AS_OF - HOUR),
        Turn("warning", AS_OF - HOUR, AS_OF),
    ]
    begin, seen, end = (BEGIN + HOUR * hours for hours in (100, 110, 120))
    over = Incident(entity, "consumer_lag", begin, end, seen, "critical", 0, 36_000, 36_000)
    return Facts(
        scope=Scope(BEGIN, BEGIN, AS_OF, "Europe/Berlin", ["shop"], 1, 1, 1, 12_345, generated),
        objectives=[
            Objective(
                "lag",
                "lag of at most a minute",
                0.99,
                2,
                1,
                [
                    Promise("lag", entity, 0.99, 0.95, 5.0, {24: 0.0, 672: 5.0}, [(BEGIN + HOUR, -4.0)]),
                    Promise("lag", of_queue, 0.99, 1.0, 0.0, {672: 0.0}, [(AS_OF, 1.0)]),
                ],
            )
        ],
        incidents=Incidents(
            count=2,
            critical=1,
            going_on=1,
            worst=[
                Incident(entity, "consumer_lag", AS_OF - HOUR, None, AS_OF, "warning", 3600, 0, 0),
                over,
            ],
            longest=[over],
            tracks=[Track(entity, "consumer_lag", 2, 39_600, turns)],
            track_count=1,
        ),
        flows=[Flow(of_queue, 1000, [(hour, 2.5, 2.0) for hour in hours])],
        flow_count=1,
        lags=[Lag(entity, 7200, [(hour, 1.0, 2.0, 90.0) for hour in hours])],
        lag_count=1,
        weeks=[Week(of_queue, {hour: float(hour) for hour in range(168)})],
        week_count=1,
        forecasts=[
            Forecast(entity, AS_OF, 3600, 7200, 18_000, 14_400, None, [(AS_OF - HOUR, 10.0), (AS_OF, 3600.0)])
        ],
        growing=1,
        judged=1,
        dead_letters=[DeadLetters(of_queue, "invoice", "no such <text>", 17, BEGIN, AS_OF, "no such 'x'")],
        dead_letter_count=17,
        dead_letter_groups=1,
        refused=[Refused("not a line of OTLP JSON", 3, 2)],
        refused_count=3,
        gaps=[Gap("shop", BEGIN + HOUR * 110, BEGIN + HOUR * 120)],
        gap_count=1,
        unwatched_seconds=36_000,
    )
