"""The contract between the service and a pack, on a pack of an engine that doesn't exist."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgque_exporter.connection import FailureKind, PollError
from pgque_exporter.contract import PollResult
from pgque_exporter.redaction import Redactor
from pgque_exporter.snapshot import HistogramSeries
from pgque_exporter.target import Poller
from tests.exporter.harness import CATALOGUE, ToyPack, poll, poll_error, target
from tests.support.database import Database


def values(result: PollResult) -> dict[str, dict[str, float]]:
    """Values by metric and by the labels beside engine and database, joined."""
    return {
        family.metric.name: {
            "/".join(value for _, value in series.labels[2:]): series.value for series in family.series
        }
        for family in result.snapshot.families
    }


def dropped(result: PollResult) -> dict[str, int]:
    return {reason: count for reason, count in result.snapshot.dropped.items() if count}


def test_rows_become_a_snapshot(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.message.sent_total", "12", queue="b")
    toy.add("pgque.queue.depth", "3.5", queue="a")
    toy.add("pgque.consumer.lag_seconds", 0, consumer="c", queue="a")
    result = poll(database.dsn())
    assert [family.metric.name for family in result.snapshot.families] == [
        "pgque.queue.depth",
        "pgque.message.sent_total",
        "pgque.consumer.lag_seconds",
    ]
    lag = result.snapshot.families[2].labels
    assert lag == ((("engine", "toy"), ("database", "shop"), ("queue", "a"), ("consumer", "c")),)
    assert dropped(result) == {}
    [pack] = result.packs
    assert (pack.schema, pack.engine, pack.engine_version, pack.pack_version) == (
        "toy_observability",
        "toy",
        "7.1",
        "0.2",
    )


def test_bad_rows_are_counted_and_cost_only_themselves(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 7, queue="good")
    for name in ("no.such.metric", None, "pgque.up", "pgque.batch.size"):
        toy.add(name, 1, queue="q")
    for labels in (
        '{"queue": 5}',
        '{"queue": null}',
        '{"queue": {"a": "b"}}',
        '["queue"]',
        '"queue"',
        "null",
        '{"secret": "x"}',
        '{"queue": "q", "consumer": "not of this metric"}',
        f'{{"queue": "{"x" * 1025}"}}',
        f'{{"queue": {"[" * 2000}{"]" * 2000}}}',
        '{"queue": 1e5000}',
    ):
        toy.add_raw("pgque.queue.depth", 1, labels)
    toy.add("pgque.queue.depth", 8, queue="good")
    for number, value in enumerate((None, "NaN", "Infinity", "-Infinity", "1e400")):
        toy.add("pgque.queue.depth", value, queue=f"n{number}")
    toy.add("pgque.message.sent_total", -1, queue="good")
    toy.add("pgque.queue.unticked_events", "1e-400", queue="tiny")
    result = poll(database.dsn())
    assert values(result) == {
        "pgque.queue.depth": {"good": 7.0},
        "pgque.queue.unticked_events": {"tiny": 0.0},
    }
    assert dropped(result) == {
        "unknown_metric": 4,
        "invalid_label": 10,
        "label_too_long": 1,
        "duplicate": 1,
        "no_value": 6,
    }


# What the types json and text let pass, and jsonb doesn't.
POISON = (
    """'{"queue": "\\ud800x"}'""",
    """'{"queue": '""",
    """'{"a": ' || repeat('[', 2000) || repeat(']', 2000) || '}'""",
)


@pytest.mark.parametrize("labels", POISON)
def test_labels_that_no_page_can_hold_cost_only_their_row(
    database: Database, toy: ToyPack, labels: str
) -> None:
    depth = "select 'pgque.queue.depth', 'gauge', 1.0"
    toy.replace_metrics(f"""{depth}, '{{"queue": "good"}}'::text union all {depth}, {labels}""", "text")
    result = poll(database.dsn())
    assert values(result) == {"pgque.queue.depth": {"good": 1.0}}
    assert dropped(result) == {"invalid_label": 1}


def test_columns_of_any_type_are_texts(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.health_status", 2, queue="5")
    toy.add("pgque.queue.health_state", 1, queue="5", check="lag", state="critical")
    database.connect().execute(
        "drop function toy_observability.queue_health(), toy_observability.health_checks();"
        "create function toy_observability.queue_health() returns table "
        "(queue_name int, check_name json, status name, detail bytea) language sql as "
        """$$ select 5, '{"a": 1}'::json, 'critical'::name, 'why'::bytea $$;"""
        "create function toy_observability.health_checks() returns table "
        "(check_name int, subject name, meaning text) language sql as "
        "$$ values (7, 'queue'::name, ''), (null, 'queue', '') $$"
    )
    result = poll(database.dsn())
    [check] = result.snapshot.checks
    assert (check.queue, check.check, check.status) == ("5", '{"a": 1}', "critical")
    assert result.packs[0].queue_checks == ("7",)
    assert set(values(result)["pgque.queue.health_state"]) == {
        f"5/{check}/{state}" for check in ("lag", "7") for state in ("ok", "warning", "critical", "unknown")
    }


def add_histogram(
    toy: ToyPack, buckets: dict[str, float], total: float | None, count: float | None, **labels: str
) -> None:
    for bound, value in buckets.items():
        toy.add("pgque.batch.size_bucket", value, le=bound, **labels)
    if total is not None:
        toy.add("pgque.batch.size_sum", total, **labels)
    if count is not None:
        toy.add("pgque.batch.size_count", count, **labels)


def test_names_of_metrics_of_any_type_are_texts(database: Database, toy: ToyPack) -> None:
    database.connect().execute(
        "drop function toy_observability.otel_metrics(); create function toy_observability.otel_metrics() "
        "returns table (metric_name json, metric_type text, value numeric, labels jsonb) "
        """language sql as $$ values ('"odd"'::json, 'gauge', 1, null::jsonb), ('5', 'gauge', 2, null) $$"""
    )
    assert dropped(poll(database.dsn())) == {"unknown_metric": 2}


def test_parts_become_histograms(database: Database, toy: ToyPack) -> None:
    add_histogram(toy, {"+Inf": 7, "10": 7, "1": 2, "5.5": 2}, 40.5, 7, queue="q", consumer="c")
    add_histogram(toy, {"+Inf": 0}, 0, 0, queue="q", consumer="idle")  # bounds are the pack's choice
    toy.add("pgque.queue.depth", 3, queue="q")
    result = poll(database.dsn())
    [family] = result.snapshot.histograms
    assert family.metric is CATALOGUE["pgque.batch.size"]
    base = (("engine", "toy"), ("database", "shop"), ("queue", "q"))
    assert sorted(family.series, key=lambda series: series.labels) == [
        HistogramSeries((*base, ("consumer", "c")), (1.0, 5.5, 10.0), (2, 0, 5, 0), 40.5),
        HistogramSeries((*base, ("consumer", "idle")), (), (0,), 0.0),
    ]
    assert dropped(result) == {}
    assert result.snapshot.points == 3


@pytest.mark.parametrize(
    ("buckets", "total", "count"),
    [
        ({"1": 2, "10": 3}, 5, 3),  # no +Inf
        ({}, 5, 3),
        ({"1": 2, "+Inf": 3}, None, 3),
        ({"1": 2, "+Inf": 3}, 5, None),
        ({"1": 2, "+Inf": 3}, 5, 4),
        ({"1": 4, "+Inf": 3}, 5, 3),  # not cumulative
        ({"1": 1.5, "+Inf": 3}, 5, 3),
    ],
)
def test_histograms_that_do_not_fit_together_are_dropped_whole(
    database: Database, toy: ToyPack, buckets: dict[str, float], total: float | None, count: float | None
) -> None:
    add_histogram(toy, {"1": 1, "+Inf": 1}, 1, 1, queue="good")
    add_histogram(toy, buckets, total, count, queue="bad")
    result = poll(database.dsn())
    [family] = result.snapshot.histograms
    assert [dict(series.labels)["queue"] for series in family.series] == ["good"]
    rows = len(buckets) + (total is not None) + (count is not None)
    assert dropped(result) == {"invalid_histogram": rows}


def test_bad_parts_of_a_histogram_are_counted_each_by_its_fault(database: Database, toy: ToyPack) -> None:
    add_histogram(toy, {"1": 1, "+Inf": 1}, 1, 1, queue="q")
    for bound in ("one", "nan", ""):
        toy.add("pgque.batch.size_bucket", 1, queue="q", le=bound)
    toy.add("pgque.batch.size_bucket", 1, queue="q")
    for part in ("sum", "count"):
        toy.add(f"pgque.batch.size_{part}", 1, queue="q", le="1")
        toy.add(f"pgque.batch.size_{part}", 1, queue="q")  # a second time
    toy.add("pgque.batch.size_bucket", 1, queue="q", le="1.0")  # the same bound
    toy.add("pgque.batch.size_bucket", -1, queue="q", le="2")
    toy.add("pgque.batch.size_bucket", None, queue="q", le="3")
    toy.add("pgque.queue.depth", 1, queue="q", le="1")
    for name in ("pgque.batch.size_", "pgque.batch.size_max", "pgque.queue.depth_sum", "_bucket"):
        toy.add(name, 1, queue="q")
    toy.add("pgque.exporter.poll_duration_seconds_sum", 1, queue="q")  # ours, not a pack's
    result = poll(database.dsn())
    [family] = result.snapshot.histograms
    assert [(series.bounds, series.counts) for series in family.series] == [((1.0,), (1, 0))]
    assert dropped(result) == {"invalid_label": 7, "duplicate": 3, "no_value": 2, "unknown_metric": 5}


def test_labels_of_any_kind_arrive_unharmed(database: Database, toy: ToyPack) -> None:
    names = [
        'a"b',
        "back\\slash",
        "line\nend",
        "tab\t",
        "ünïcode 🐘",
        "{}",
        "x" * 1024,
        "'; drop table x; --",
    ]
    for name in names:
        toy.add("pgque.queue.depth", 1, queue=name)
    assert set(values(poll(database.dsn()))["pgque.queue.depth"]) == set(names)


def test_an_empty_label_is_no_label(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.consumer.lag_seconds", 1, queue="q", consumer="")
    toy.add("pgque.consumer.lag_seconds", 2, queue="q")
    result = poll(database.dsn())
    assert values(result) == {"pgque.consumer.lag_seconds": {"q": 1.0}}
    assert dropped(result) == {"duplicate": 1}


def test_a_pack_without_rows_is_a_good_poll(database: Database, toy: ToyPack) -> None:
    result = poll(database.dsn())
    assert (result.snapshot.points, result.failures) == (0, ())


def state_sets(result: PollResult) -> dict[str, list[str]]:
    """States that are 1, by check; each check has all four."""
    found = values(result)["pgque.queue.health_state"]
    checks: dict[str, list[str]] = {}
    for path, value in found.items():
        check, _, state = path.rpartition("/")
        checks.setdefault(check, []).extend([state] if value else [])
    assert len(found) == 4 * len(checks)
    return checks


def test_checks_without_a_row_are_ok_and_every_state_set_is_whole(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.health_status", 2, queue="q")
    toy.add("pgque.queue.health_state", 1, queue="q", check="lag", state="critical")
    toy.add("pgque.queue.health_status", 0, queue="q", consumer="app")
    result = poll(database.dsn())
    assert state_sets(result) == {"q/lag": ["critical"], "q/ticker": ["ok"], "q/app/stuck": ["ok"]}
    assert values(result)["pgque.queue.health_status"] == {"q": 2.0, "q/app": 0.0}
    assert result.snapshot.checks_ok == 2


def test_a_pack_that_sends_only_states_gets_its_status_from_them(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.health_state", 1, queue="q", check="lag", state="warning")
    toy.add("pgque.queue.health_state", 1, queue="q", check="other", state="unknown")
    toy.add("pgque.queue.health_state", 1, queue="q", consumer="app", check="stuck", state="unknown")
    result = poll(database.dsn())
    assert state_sets(result) == {
        "q/lag": ["warning"],
        "q/other": ["unknown"],
        "q/ticker": ["ok"],
        "q/app/stuck": ["unknown"],
    }
    assert values(result)["pgque.queue.health_status"] == {"q": 1.0}


def test_a_check_of_something_else_than_a_queue_makes_no_queue(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.health_state", 1, queue="system", check="scheduler", state="ok")
    result = poll(database.dsn())
    assert state_sets(result) == {"system/scheduler": ["ok"]}
    assert values(result)["pgque.queue.health_status"] == {"system": 0.0}


def test_details_are_asked_for_only_when_something_is_wrong(database: Database, toy: ToyPack) -> None:
    connection = database.connect()
    toy.add("pgque.queue.health_state", 1, queue="q", check="lag", state="ok")
    broken = (
        "create or replace function toy_observability.queue_health() returns table "
        "(queue_name text, check_name text, status text, detail text) language plpgsql as "
        "$$ begin raise exception 'asked'; end $$"
    )
    connection.execute(broken)
    fine = poll(database.dsn())
    assert (fine.snapshot.checks_ok, fine.snapshot.checks, fine.failures) == (2, (), ())
    toy.add("pgque.queue.health_state", 1, queue="q", check="rotation", state="critical")
    ill = poll(database.dsn())
    [check] = ill.snapshot.checks  # what the rows say, without the words
    assert (check.queue, check.check, check.status, check.detail) == ("q", "rotation", "critical", "")
    [failure] = ill.failures
    assert "asked" in failure.error.message


def test_a_state_that_nobody_knows_is_unknown(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.health_state", 1, queue="q", check="lag", state="on holiday")
    [check] = poll(database.dsn()).snapshot.checks
    assert (check.queue, check.check, check.status) == ("q", "lag", "unknown")


def test_checks_come_in_the_words_of_the_database(database: Database, toy: ToyPack) -> None:
    toy.add_health("q", "lag:mailer", "critical", "mailer is 3 hours behind")
    toy.add_health("q", "rotation", "unknown", "no idea")
    checks = poll(database.dsn()).snapshot.checks
    assert [(check.engine, check.check, check.status, check.detail) for check in checks] == [
        ("toy", "lag:mailer", "critical", "mailer is 3 hours behind"),
        ("toy", "rotation", "unknown", "no idea"),
    ]


def test_two_packs_in_one_database(database: Database, toy: ToyPack) -> None:
    other = ToyPack(database.connect(), "other_observability", "other")
    toy.add("pgque.queue.depth", 1, queue="q")
    other.add("pgque.queue.depth", 2, queue="q")
    result = poll(database.dsn())
    depth = result.snapshot.families[0]
    assert {series.labels[0][1]: series.value for series in depth.series} == {"toy": 1.0, "other": 2.0}
    assert dropped(result) == {}


@pytest.mark.parametrize(
    "fault",
    [
        "drop table a_pack_before.row",
        "alter table a_pack_before.row rename to old; create view a_pack_before.row as "
        "select metric_name, metric_type, 1 / 0::numeric, labels from a_pack_before.old",
        "create or replace function a_pack_before.observability_info() returns table "
        "(engine text, engine_version text, pack_version text) "
        "language sql as $$ select 'x', '', '' where false $$",
        "revoke all on function a_pack_before.queue_health() from public",
    ],
)
def test_a_pack_that_fails_leaves_the_other_its_rows(database: Database, toy: ToyPack, fault: str) -> None:
    connection = database.connect()
    ToyPack(connection, "a_pack_before", "other").add("pgque.queue.depth", 2, queue="q")
    toy.add("pgque.queue.depth", 1, queue="q")
    connection.execute(fault.encode())
    with monitor(database, "toy_observability", "a_pack_before") as user:
        result = poll(database.dsn(user=user))
    assert values(result) == {"pgque.queue.depth": {"q": 1.0}}
    [failure] = result.failures
    assert failure.schema == "a_pack_before"


@contextmanager
def monitor(database: Database, *schemas: str) -> Iterator[str]:
    """A login that may do what the toy pack needs in these schemas."""
    connection = database.connect()
    name = f"monitor_{uuid.uuid4().hex[:8]}"
    connection.execute(f"create role {name} login")
    try:
        for schema in schemas:
            connection.execute(f"grant usage on schema {schema} to {name}")
            connection.execute(f"grant select on all tables in schema {schema} to {name}")
        yield name
    finally:
        connection.execute(f"drop owned by {name} cascade")
        connection.execute(f"drop role {name}")


def test_another_database_is_of_another_origin_whatever_it_is_called(
    database: Database, other_database: Database, toy: ToyPack
) -> None:
    ToyPack(other_database.connect())
    first, again, other = (
        poll(dsn, name="same").snapshot for dsn in (database.dsn(), database.dsn(), other_database.dsn())
    )
    assert first.database == other.database
    assert first.origin is not None
    assert first.origin == again.origin != other.origin
    cluster, _, oid = first.origin.partition("/")
    row = database.connect().execute(
        "select system_identifier::text, oid::text from pg_control_system(), pg_database where datname = %s",
        (database.name,),
    )
    assert row.fetchone() == (cluster, oid)


def test_an_origin_that_may_not_be_known_costs_nothing_else(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    database.connect().execute("revoke execute on function pg_control_system() from public")
    with monitor(database, "toy_observability") as user:
        snapshot = poll(database.dsn(user=user)).snapshot
    assert (snapshot.origin, snapshot.points) == (None, 1)


def test_a_database_without_a_pack_says_what_to_do(database: Database) -> None:
    error = poll_error(database.dsn())
    assert (error.kind, error.message) == (FailureKind.CONTRACT, "no pack is installed")
    assert error.hint == "run `pgque-exporter sql install`"


@pytest.mark.parametrize("schemas", [(), ("toy_observability",)])
def test_missing_grants_are_named_with_the_remedy(
    database: Database, toy: ToyPack, schemas: tuple[str, ...]
) -> None:
    database.connect().execute("revoke all on all functions in schema toy_observability from public")
    with monitor(database, *schemas) as user:
        error = poll_error(database.dsn(user=user))
    assert error.kind is FailureKind.PERMISSION
    assert "toy_observability" in error.message
    assert f"grant pgque_monitor to {user}" in str(error.hint)


def test_a_grant_missing_inside_of_a_pack_is_its_installer_s_to_mend(
    database: Database, toy: ToyPack
) -> None:
    with monitor(database, "toy_observability") as user:
        database.connect().execute(f"revoke select on toy_observability.row from {user}")
        error = poll_error(database.dsn(user=user))
    assert (error.kind, error.message, error.hint) == (
        FailureKind.PERMISSION,
        "the pack in schema 'toy_observability' lacks a grant: permission denied for table row",
        "run `pgque-exporter sql install` again",
    )


def test_an_error_quotes_neither_rows_nor_sql(database: Database, toy: ToyPack) -> None:
    connection = database.connect()
    connection.execute(
        "create function toy_observability.fail() returns text language plpgsql as $$ begin "
        "raise exception 'no luck' using detail = 'row (hunter2)', hint = 'ask hunter2'; end $$"
    )
    toy.replace_metrics("select toy_observability.fail(), '', 1.0, '{}'::jsonb")
    assert poll_error(database.dsn()).message == "no luck"


def test_a_planted_pack_is_ignored_unless_named(database: Database, toy: ToyPack) -> None:
    connection = database.connect()
    toy.add("pgque.queue.depth", 1, queue="q")
    with monitor(database) as mallory:
        connection.execute(f"grant create on database {database.name} to {mallory}")
        own = psycopg.connect(database.dsn(user=mallory), autocommit=True)
        with own:
            ToyPack(own, "planted_observability", "planted").add("pgque.queue.depth", 666, queue="q")
        result = poll(database.dsn())
        assert result.ignored == ("planted_observability",)
        assert [pack.engine for pack in result.packs] == ["toy"]
        assert values(result) == {"pgque.queue.depth": {"q": 1.0}}
        trusting = poll(database.dsn(), packs=("planted_observability",))
        assert sorted(pack.engine for pack in trusting.packs) == ["planted", "toy"]
        connection.execute("drop schema toy_observability cascade")
        assert (
            "no trusted pack is installed (ignored: planted_observability)"
            in poll_error(database.dsn()).message
        )


def test_one_planted_function_spoils_a_pack(database: Database, toy: ToyPack) -> None:
    with monitor(database) as mallory:
        connection = database.connect()
        connection.execute(f"alter function toy_observability.queue_health() owner to {mallory}")
        assert "no trusted pack" in poll_error(database.dsn()).message
        connection.execute("alter function toy_observability.queue_health() owner to postgres")


def test_the_owner_of_the_database_may_install_packs(database: Database) -> None:
    connection = database.connect()
    with monitor(database) as owner:
        connection.execute(f"alter database {database.name} owner to {owner}")
        with psycopg.connect(database.dsn(user=owner), autocommit=True) as own:
            ToyPack(own)
        assert [pack.engine for pack in poll(database.dsn()).packs] == ["toy"]
        connection.execute(f"alter database {database.name} owner to postgres")


def test_a_named_pack_that_is_missing_is_a_failure(database: Database, toy: ToyPack) -> None:
    [failure] = poll(database.dsn(), packs=("nowhere",)).failures
    assert "no pack in schema 'nowhere'" in failure.error.message


def test_a_pack_can_not_write(database: Database, toy: ToyPack) -> None:
    toy.replace_metrics("delete from toy_observability.row returning *")
    error = poll_error(database.dsn())
    assert error.kind is FailureKind.CONTRACT
    assert "read-only transaction" in error.message


def test_a_poll_leaves_no_transaction_behind(database: Database, toy: ToyPack) -> None:
    connection = database.connect()

    async def twice() -> list[str]:
        poller = Poller(target(database.dsn()), CATALOGUE, Redactor())
        states = []
        try:
            await poller.poll()
            states.append(state())
            toy.replace_metrics("select 'x', 'gauge', 1/0::numeric, null::jsonb")
            with pytest.raises(PollError):
                await poller.poll()
            states.append(state())
        finally:
            await poller.close()
        return states

    def state() -> str:
        query = "select state, application_name from pg_stat_activity where datname = %s"
        rows = connection.execute(query, (database.name,)).fetchall()
        return next(str(row[0]) for row in rows if row[1] == "pgque-exporter")

    assert asyncio.run(twice()) == ["idle", "idle"]
