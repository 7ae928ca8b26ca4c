"""Can the other dashboards be believed: does the service live, is its data fresh, does all of it arrive?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.generator import queries as q
from dashboards.generator.page import Row, page
from dashboards.generator.panels import (
    GOOD_IS_ZERO,
    Column,
    Steps,
    chart,
    named,
    rows,
    stat_panel,
)

UP = {0: ("down", "red"), 1: ("up", "green")}
AGREED = {0: ("refused", "red"), 1: ("in use", "green")}
LEADS = {0: ("waits", "blue"), 1: ("leads", "green")}
FRESH: Steps = ((None, "green"), (60, "orange"), (120, "red"))
NO_PUSH = "No push is reported"

BY_INSTANCE = "job, instance"
# Of a process that is gone: what it was, if it ran in the time on show.
BUILD = f"pgque_exporter_build_info or on ({BY_INSTANCE}) last_over_time(pgque_exporter_build_info[$__range])"
ARCHIVE = "pgque_exporter_archive_points"
POLLED = "pgque_exporter_otlp_points_polled_total"
POINTS = {
    "sent": "pgque_exporter_otlp_points_sent_total",
    "rejected": "pgque_exporter_otlp_points_rejected_total",
    "dropped": "pgque_exporter_otlp_points_dropped_total",
}


def _service(metric: str) -> str:
    """A gauge of the service, one series a process."""
    return f"max by ({BY_INSTANCE}) ({metric})"


def _scraped(metric: str) -> str:
    """What Prometheus itself notes of a scrape, one series a process."""
    return f"max by ({BY_INSTANCE}) ({metric} and on ({BY_INSTANCE}) pgque_exporter_build_info)"


def _service_rate(metric: str, by: str = BY_INSTANCE) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _grown(metric: str) -> str:
    """By how much a counter of each process grew in the time on show."""
    return f"sum by ({BY_INSTANCE}) (increase({metric}[$__range]))"


def _by_database(metric: str, by: str = "database") -> str:
    """A counter of the service, per second; of each database."""
    return f"sum by ({by}) (rate({metric}{{{q.DATABASE}}}[$__rate_interval]))"


def build() -> Dashboard:
    durations = _by_database("pgque_exporter_poll_duration_seconds_bucket", "le, database")
    requests = _service_rate("pgque_exporter_otlp_request_duration_seconds_bucket", "le, result")
    late = _service_rate("pgque_exporter_event_loop_lag_seconds_bucket", "le, instance")
    unaccounted = " - ".join(
        [
            f"sum({POLLED})",
            *(f"sum({metric})" for metric in POINTS.values()),
            "sum(pgque_exporter_otlp_queue_points)",
        ]
    )
    return page(
        "pgque-exporter-delivery",
        "PgQue / Exporter and delivery",
        "Can the other dashboards be believed: does the service live, is its data fresh, does it arrive?",
        [
            Row(
                3,
                [
                    stat_panel(
                        1,
                        "Unreachable databases",
                        "Databases whose last poll failed.",
                        q.count(q.database("pgque_up"), "== bool 0"),
                        steps=GOOD_IS_ZERO,
                    ),
                    stat_panel(
                        2,
                        "Oldest data",
                        "Age of the oldest data on show. Beyond its limit the service shows none instead.",
                        f"max({q.database('pgque_snapshot_age_seconds')})",
                        "s",
                        steps=FRESH,
                        decimals=1,
                    ),
                    stat_panel(
                        3,
                        "Failed polls",
                        "Share of the polls that failed, for whatever reason.",
                        f"1 - sum(rate(pgque_exporter_polls_total{{{q.DATABASE},"
                        'result="ok"}[$__rate_interval]))'
                        f" / sum(rate(pgque_exporter_polls_total{{{q.DATABASE}}}[$__rate_interval]))",
                        "percentunit",
                        steps=((None, "green"), (0.01, "orange"), (0.5, "red")),
                        decimals=1,
                    ),
                    stat_panel(
                        4,
                        "Series left out",
                        "Series that limits or faulty rows kept off the page in the time on show.",
                        f"sum(increase(pgque_exporter_series_dropped_total{{{q.DATABASE}}}[$__range]))",
                        steps=GOOD_IS_ZERO,
                        decimals=0,
                    ),
                    stat_panel(
                        5,
                        "Points that never arrived",
                        "OTLP points refused or given up in the time on show.",
                        "sum(increase(pgque_exporter_otlp_points_rejected_total[$__range]))"
                        " + sum(increase(pgque_exporter_otlp_points_dropped_total[$__range]))",
                        steps=GOOD_IS_ZERO,
                        decimals=0,
                        no_value="not reported",
                    ),
                    stat_panel(
                        6,
                        "Points unaccounted for",
                        "Points taken in that are neither sent nor rejected, dropped or waiting. The books"
                        " balance: this is 0.",
                        unaccounted,
                        steps=((None, "red"), (0, "green"), (1, "red")),
                        no_value="not reported",
                    ),
                ],
            ),
            Row(
                6,
                [
                    rows(
                        7,
                        "Which services run?",
                        "Every process that Prometheus scrapes, or did in the time on show. Configuration and"
                        " access: are their files in use as they are now? Push: which of several replicas"
                        " pushes.",
                        [
                            Column("Instance", "instance"),
                            Column("Job", "job"),
                            Column("Version", "version", width=110),
                            Column("Python", "python_version", width=110),
                            Column(
                                "Scrape",
                                expr=f"max by ({BY_INSTANCE}, version, python_version)"
                                f" ({BUILD}) * on ({BY_INSTANCE}) group_left ()"
                                f" max by ({BY_INSTANCE}) (up)",
                                mappings=named(UP),
                                width=90,
                            ),
                            Column(
                                "Scrape takes",
                                expr=_scraped("scrape_duration_seconds"),
                                unit="s",
                                width=130,
                            ),
                            Column(
                                "Series",
                                expr=_scraped("scrape_samples_scraped"),
                                width=100,
                            ),
                            Column(
                                "Configuration",
                                expr=_service("pgque_exporter_config_reload_success"),
                                mappings=named(AGREED),
                                width=130,
                                none="no file",
                            ),
                            Column(
                                "Loaded",
                                expr=f"time() - {_service('pgque_exporter_config_reload_timestamp_seconds')}",
                                unit="s",
                                width=110,
                            ),
                            Column(
                                "Access",
                                expr=_service("pgque_exporter_web_config_reload_success"),
                                mappings=named(AGREED),
                                width=90,
                                none="open",
                            ),
                            Column(
                                "Push",
                                expr=_service("pgque_exporter_leader"),
                                mappings=named(LEADS),
                                width=90,
                                none="alone",
                            ),
                        ],
                        sort_by="Instance",
                        descending=False,
                    )
                ],
            ),
            Row(
                9,
                [
                    chart(
                        8,
                        "Is the data fresh?",
                        "Age of each database's data, and time since its last successful poll, which goes"
                        " on when there is no data any more.",
                        {
                            "{{database}} data": q.database("pgque_snapshot_age_seconds"),
                            "{{database}} last poll": "time()"
                            f" - {q.database('pgque_last_success_timestamp_seconds')}",
                        },
                        "s",
                        narrow=True,
                    ),
                    chart(
                        9,
                        "What does a poll take?",
                        "Duration of a poll: the slowest of twenty, and half of them.",
                        {
                            "{{database}} p95": f"histogram_quantile(0.95, {durations})",
                            "{{database}} p50": f"histogram_quantile(0.5, {durations})",
                        },
                        "s",
                        narrow=True,
                    ),
                    chart(
                        10,
                        "Do polls succeed?",
                        "Polls per minute by result, and those that were skipped because the one before"
                        " still ran.",
                        {
                            "{{database}} {{result}}": _by_database(
                                "pgque_exporter_polls_total", "database, result"
                            )
                            + " * 60",
                            "{{database}} skipped": _by_database("pgque_exporter_polls_skipped_total")
                            + " * 60",
                        },
                        "suffix:/min",
                        narrow=True,
                    ),
                ],
            ),
            Row(
                9,
                [
                    chart(
                        11,
                        "What becomes of the points?",
                        "OTLP points per second: sent, refused by the collector, given up by reason.",
                        {
                            "sent": f"sum(rate({POINTS['sent']}[$__rate_interval]))",
                            "rejected": f"sum(rate({POINTS['rejected']}[$__rate_interval]))",
                            "dropped: {{reason}}": f"{_service_rate(POINTS['dropped'], 'reason')}",
                        },
                        "suffix:points/s",
                        no_value=NO_PUSH,
                        narrow=True,
                    ),
                    chart(
                        12,
                        "Does the collector keep up?",
                        "Points that wait for the collector or are on the way to it.",
                        {"{{instance}}": _service("pgque_exporter_otlp_queue_points")},
                        "suffix:points",
                        most=1,
                        no_value=NO_PUSH,
                        narrow=True,
                    ),
                    chart(
                        13,
                        "How does the collector answer?",
                        "Duration of the slowest of twenty requests, by how it ended.",
                        {"{{result}} p95": f"histogram_quantile(0.95, {requests})"},
                        "s",
                        no_value=NO_PUSH,
                        narrow=True,
                    ),
                ],
            ),
            Row(
                6,
                [
                    rows(
                        17,
                        "Where is every point?",
                        "Points of each process in the time on show, and those that wait now. What was taken"
                        " in is sent, refused, given up or waits; of the archive: written, missing or waits.",
                        [
                            Column("Instance", "instance"),
                            Column("Job", "job"),
                            Column("To push", expr=_grown(POLLED), decimals=0, none="no push", width=110),
                            Column("Sent", expr=_grown(POINTS["sent"]), decimals=0, width=100),
                            Column(
                                "Refused",
                                expr=_grown(POINTS["rejected"]),
                                decimals=0,
                                steps=GOOD_IS_ZERO,
                                width=100,
                            ),
                            Column(
                                "Given up",
                                expr=_grown(POINTS["dropped"]),
                                decimals=0,
                                steps=GOOD_IS_ZERO,
                                width=100,
                            ),
                            Column(
                                "Wait",
                                expr=_service("pgque_exporter_otlp_queue_points"),
                                decimals=0,
                                width=100,
                            ),
                            Column(
                                "To archive",
                                expr=_grown(f"{ARCHIVE}_polled_total"),
                                decimals=0,
                                none="none",
                                width=110,
                            ),
                            Column("Written", expr=_grown(f"{ARCHIVE}_written_total"), decimals=0, width=100),
                            Column(
                                "Missing",
                                expr=_grown(f"{ARCHIVE}_dropped_total"),
                                decimals=0,
                                steps=GOOD_IS_ZERO,
                                width=100,
                            ),
                            Column(
                                "Archive size",
                                expr=_service("pgque_exporter_archive_size_bytes"),
                                unit="bytes",
                                width=120,
                            ),
                            Column(
                                "Files deleted",
                                expr=_grown("pgque_exporter_archive_files_deleted_total"),
                                decimals=0,
                                width=110,
                            ),
                        ],
                        sort_by="Instance",
                        descending=False,
                        no_value="Neither push nor archive is reported",
                    )
                ],
            ),
            Row(
                9,
                [
                    chart(
                        14,
                        "What is left out?",
                        "Series and rows that were not exported, per minute, by reason.",
                        {
                            "{{reason}}": _by_database("pgque_exporter_series_dropped_total", "reason")
                            + " * 60"
                        },
                        "suffix:/min",
                        most=1,
                        narrow=True,
                    ),
                    chart(
                        15,
                        "Is the instrumentation rolled up?",
                        "Rows that the instrumentation has logged and nobody has rolled up yet.",
                        {
                            "{{database}}": "max by (engine, database)"
                            f" (pgque_instrumentation_log_rows{{{q.DATABASE}}})"
                        },
                        no_value="No instrumentation is reported",
                        narrow=True,
                    ),
                    chart(
                        16,
                        "Is the service itself late?",
                        "By how much the service's event loop was late in the slowest of a hundred seconds:"
                        " all that it does is late by as much.",
                        {"{{instance}} p99": f"histogram_quantile(0.99, {late})"},
                        "s",
                        narrow=True,
                    ),
                ],
            ),
        ],
        variables=["database"],
    )
