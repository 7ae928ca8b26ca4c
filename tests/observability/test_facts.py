"""Eighteen situations in which the specification's observability SQL misleads an operator.

Each test lays one on a real engine and asks twice: `told` is what the specification's text says
(spec_section_5_1.sql), `queue` what the pack says. `misled` shows that the fault is real, the assertions
after it that the pack doesn't share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Database
from tests.support.observed import CONTRACT, Connection, Queue, one

SPECIFICATION = Path(__file__).with_name("spec_section_5_1.sql")

ZERO = timedelta(0)

@pytest.fixture
def told(queue: Queue) -> Queue:
    """The same queue as the specification's SQL describes it."""
    queue.db.execute(SPECIFICATION.read_text(encoding="utf-8").encode())
    return replace(queue, schema="spec_text")


def misled(answer: object, wrong: object) -> None:
    """The specification's SQL gives this wrong answer; no assertion, which an expected failure would hide."""
    if answer != wrong:
        pytest.fail(f"the specification's SQL says {answer!r}; the fault to be shown was {wrong!r}")


@contextmanager
def acting_as(db: Connection, role: str, *grants: str) -> Iterator[None]:
    """Inside the block the connection acts as a new role with these grants; all it made goes with it."""
    db.execute(f"create role {role}".encode())
    try:
        for grant in grants:
            db.execute(f"grant {grant} to {role}".encode())
        db.execute(f"set role {role}".encode())
        yield
    finally:
        db.execute("reset role")
        db.execute("discard temp")
        db.execute(f"drop owned by {role} cascade".encode())
        db.execute(f"drop role {role}".encode())


def buffers(queue: Queue, call: str) -> int:
    """Shared buffers that one call of the contract touches, once its plans and the catalogs are cached."""
    query = f"explain (analyze, buffers, timing off, format json) select * from {queue.schema}.{call}"
    plans = [one(queue.db, query)["QUERY PLAN"][0]["Plan"] for _ in range(4)]
    # the least of several: a vacuum in the background may throw a plan out
    return min(int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"]) for plan in plans[1:])


def fail_all(queue: Queue, consumer: str, *, again_after: int) -> None:
    """Fail everything in the consumer's next batch; it is due again after so many seconds."""
    batch = queue.receive(consumer)[0]["batch_id"]
    queue.db.execute("select pgque.batch_retry(%s, %s)", (batch, again_after))
    queue.db.execute("select pgque.ack(%s)", (batch,))


def redeliver(queue: Queue, consumer: str) -> None:
    """Fail everything in the consumer's next batch and let it come again: for this consumer only."""
    fail_all(queue, consumer, again_after=0)
    assert one(queue.db, "select pgque.maint_retry_events() as moved")["moved"] > 0
    assert queue.tick() is not None


# ---- the ticker and its event sequence ----


def test_an_idle_queue_is_not_critical(queue: Queue, told: Queue) -> None:
    """Fact 1: a healthy ticker ticks an idle queue ever more seldom, down to once per idle period."""
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.consume("app")
    critical = 0
    farthest = ZERO
    for _ in range(180):  # three minutes, and a ticker that looks every second
        queue.wait(1)
        queue.tick()
        queue.consume("app")
        critical += told.health()["ticker_running"] == "critical"
        farthest = max(farthest, told.consumer("app")["lag"], told.stats()["oldest_msg_age"])

        assert queue.troubles() == {}
        assert queue.consumer("app")["lag"] == ZERO
        assert queue.stats()["oldest_msg_age"] == ZERO
    misled(critical > 90, True)
    misled(farthest > timedelta(seconds=30), True)


def test_events_that_no_tick_covers_are_counted(queue: Queue, told: Queue) -> None:
    """Fact 2: behind a stalled ticker the backlog is invisible to anything that only reads ticks."""
    queue.subscribe("app")
    queue.send(10_000)
    queue.wait(20)

    misled(told.stats()["depth"], 0)
    misled(told.consumer("app")["pending_events"], 0)

    assert queue.stats()["depth"] == 10_000
    assert queue.consumer("app")["pending_events"] == 10_000
    assert queue.metrics()[("pgque.queue.unticked_events", None)] == 10_000
    assert queue.troubles() == {"ticker_running": "critical"}


def test_throughput_of_a_stalled_ticker_is_unknown(queue: Queue, told: Queue) -> None:
    """Fact 2: the last two ticks say nothing about events that have waited far too long for the next."""
    queue.wait(61)
    assert queue.tick() is not None
    queue.send(10_000)
    queue.wait(20)

    misled(told.stats()["events_per_sec"], 0)
    misled(told.metrics()[("pgque.queue.throughput", None)], 0)

    assert queue.stats()["events_per_sec"] is None
    assert ("pgque.queue.throughput", None) not in queue.metrics()


def test_a_forced_tick_is_no_backlog(queue: Queue, told: Queue) -> None:
    """Fact 3: force_next_tick() advances the event sequence without a single event."""
    queue.db.execute("select pgque.set_queue_config('q', 'ticker_max_count', null)")
    queue.subscribe("app")
    queue.db.execute("select pgque.force_next_tick('q')")
    assert queue.tick() is not None

    misled(told.stats()["depth"], 2000)
    misled(told.consumer("app")["pending_events"], 2000)

    assert queue.stats()["depth"] == 0
    assert queue.stats()["oldest_msg_age"] == ZERO
    assert queue.consumer("app")["pending_events"] == 0
    assert queue.consumer("app")["lag"] == ZERO


def test_a_forced_tick_is_no_throughput(queue: Queue, told: Queue) -> None:
    """Fact 3: nor is it a burst of events; nothing was sent at all."""
    queue.db.execute("select pgque.force_next_tick('q')")
    assert queue.tick() is not None

    misled(told.stats()["events_per_sec"] > 0, True)

    assert queue.stats()["events_per_sec"] in (0, None)


def test_rolled_back_sends_are_no_backlog(queue: Queue, told: Queue) -> None:
    """Fact 4: a sequence doesn't roll back with the transaction that drew from it."""
    queue.subscribe("app")
    with queue.db.transaction(force_rollback=True):
        queue.send(5000)
    assert queue.tick() is not None

    misled(told.stats()["depth"], 5000)
    misled(told.consumer("app")["pending_events"], 5000)

    assert queue.stats()["depth"] == 0
    assert queue.consumer("app")["pending_events"] == 0
    assert queue.consumer("app")["lag"] == ZERO
    assert queue.receive("app") == []


def test_events_that_wait_for_their_retry_are_shown(queue: Queue, told: Queue) -> None:
    """Fact 5: acknowledged with the batch that they failed in, they wait in no consumer's backlog."""
    queue.subscribe("app")
    queue.send_and_tick(100)
    fail_all(queue, "app", again_after=3600)

    misled(told.stats()["depth"], 0)
    misled([metric for metric, _ in told.metrics() if "retr" in metric or "nack" in metric], [])

    assert queue.metrics()[("pgque.message.retry_waiting", None)] == 100
    assert "100 retries waiting" in queue.detail("retry_overdue")


def test_a_retried_event_is_pending_for_its_own_consumer_only(queue: Queue, told: Queue) -> None:
    """Fact 5: a redelivered event has an owner; the other consumers have had it."""
    queue.subscribe("failing")
    queue.subscribe("other")
    queue.send_and_tick(100)
    queue.consume("other")
    redeliver(queue, "failing")

    misled(told.consumer("other")["pending_events"], 100)

    assert queue.consumer("failing")["pending_events"] == 100
    assert queue.consumer("other")["pending_events"] == 0
    assert queue.consumer("other")["lag"] == ZERO
    assert queue.receive("other") == []


def test_a_retried_event_is_told_from_a_sent_one(counted: Queue, told: Queue) -> None:
    """Fact 5: redelivery draws from the event sequence, which is the specification's count of sends.

    The difference is left to whoever asks: the sequence moves before the redelivery is committed, so
    that a counter with the one taken off the other would fall.
    """
    queue = counted
    queue.send_and_tick(100)
    redeliver(queue, "app")

    by_ticks = one(queue.db, "select max(tick_event_seq) - min(tick_event_seq) as sent from pgque.tick")
    misled(by_ticks["sent"], 200)

    metrics = queue.metrics()
    redelivered = metrics[("pgque.message.redelivered_total", "app")]
    assert redelivered == 100
    assert metrics[("pgque.message.sent_total", None)] - redelivered == 100


def test_a_rolled_back_tick_leaves_the_rate_known(queue: Queue, told: Queue) -> None:
    """Fact 6: it burns a tick id, and the tick before the last is not the one numbered one less."""
    queue.send_and_tick(1)
    queue.wait(1000)
    with queue.db.transaction(force_rollback=True):
        queue.send_and_tick(1)
    queue.send_and_tick(100)

    misled(told.stats()["events_per_sec"], None)
    misled(told.metrics()[("pgque.queue.throughput", None)], 0)

    assert 0.09 < queue.stats()["events_per_sec"] <= 0.102
    assert 0.09 < queue.metrics()[("pgque.queue.throughput", None)] <= 0.102


# ---- consumers ----


def test_events_that_nobody_reads_are_noticed(queue: Queue, told: Queue) -> None:
    """Fact 7: a queue without consumers loses its events to rotation, unread."""
    queue.send_and_tick(100)

    misled(told.troubles(), {})

    assert queue.troubles() == {"no_consumers": "warning"}
    assert "rotation will discard them unread" in queue.detail("no_consumers")


def test_a_paused_queue_has_no_late_consumers(queue: Queue, told: Queue) -> None:
    """Fact 8: who pauses a queue on purpose must not be woken for its lag."""
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.consume("app")
    queue.db.execute("select pgque.set_queue_config('q', 'ticker_paused', 'true')")
    queue.send(9)
    queue.wait(2 * 3600 + 60)

    misled(told.troubles(), {"consumer_lag:app": "critical"})
    misled([row["consumer_name"] for row in told.ask("stuck_consumers()")], ["app"])

    assert queue.troubles() == {"paused": "warning"}
    assert queue.ask("stuck_consumers()") == []


def test_nothing_pending_is_neither_late_nor_stuck(queue: Queue, told: Queue) -> None:
    """Fact 8: an idle queue's position is as old as its last tick, whatever its rotation period."""
    queue.db.execute("select pgque.set_queue_config('q', 'rotation_period', '30 seconds')")
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.consume("app")
    queue.wait(45)

    misled(told.health()["consumer_lag:app"], "critical")
    misled([row["consumer_name"] for row in told.ask("stuck_consumers('30 seconds')")], ["app"])

    assert queue.troubles() == {}
    assert queue.ask("stuck_consumers('30 seconds')") == []


def test_a_cooperative_group_is_one_consumer(queue: Queue, told: Queue) -> None:
    """Fact 9: outstanding is what comes after the group's position and what its members hold open."""
    for name in ("group", "group.a", "group.b", "group.c"):
        queue.subscribe(name)
    queue.send_and_tick(1000)
    queue.send_and_tick(1000)
    # As the engine lays it: the main row is the group's cursor, members own the batches it handed out.
    # Member a still works on the first thousand, b has finished the second, c never took any.
    first, second, last = (
        row["tick_id"] for row in queue.db.execute("select tick_id from pgque.tick order by tick_id")
    )
    lay = (
        "update pgque.subscription set sub_role = %s, sub_last_tick = %s, sub_next_tick = %s, sub_batch ="
        " case when %s then nextval('pgque.batch_id_seq') end, sub_parent = case when %s then"
        " (select sub_id from pgque.subscription where sub_role = 'coop_main') end"
        " where sub_consumer = (select co_id from pgque.consumer where co_name = %s)"
    )
    for row in (
        ("coop_main", last, None, False, False, "group"),
        ("coop_member", first, second, True, True, "group.a"),
        ("coop_member", None, None, False, True, "group.b"),
        ("coop_member", None, None, False, True, "group.c"),
    ):
        queue.db.execute(lay.encode(), row)

    misled(told.stats()["consumers"], 4)
    misled(told.stats()["depth"], 2000)
    rows = told.ask("consumer_stats()")
    misled([row["consumer_name"] for row in rows if row["lag"] is None], ["group.b", "group.c"])
    misled([row["value"] for row in told.ask("otel_metrics()")].count(None), 2)

    assert queue.stats().items() >= {"consumers": 1, "depth": 1000}.items()
    rows = queue.ask("consumer_stats()")
    assert [(row["consumer_name"], row["pending_events"]) for row in rows] == [("group", 1000)]
    assert rows[0]["lag"] > ZERO
    assert queue.metrics()[("pgque.consumer.open_batch_events", "group")] == 1000
    assert queue.troubles() == {}


def test_a_lost_position_is_critical(queue: Queue, told: Queue) -> None:
    """Fact 10: a consumer whose tick is gone can never go on; it has anything but nothing to do."""
    queue.subscribe("app")
    queue.send_and_tick(100)
    queue.db.execute("delete from pgque.tick where tick_id = (select sub_last_tick from pgque.subscription)")
    with pytest.raises(psycopg.errors.DataCorrupted, match="position of consumer app in queue q is lost"):
        queue.receive("app")

    misled(told.stats()["depth"], 0)
    misled(told.consumer("app")["pending_events"], 0)
    misled(told.troubles(), {})
    misled("consumer_lag:app" in told.health(), False)

    assert queue.troubles()["missing_tick:app"] == "critical"
    assert queue.stats()["depth"] is None
    assert queue.consumer("app").items() >= {"lag": None, "pending_events": None}.items()


# ---- the engine around them ----


def test_transaction_ids_that_went_backwards_are_critical(queue: Queue, told: Queue) -> None:
    """Fact 11: in a restored dump the last tick is ahead of the server, and nothing can be ticked."""
    queue.subscribe("app")
    queue.db.execute("update pgque.tick set tick_snapshot = '99999999:99999999:'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="ahead of this server"):
        queue.tick()

    misled(told.troubles(), {})

    assert queue.troubles()["xid_regression"] == "critical"


def test_a_ticker_driven_from_outside_needs_no_pg_cron(queue: Queue, told: Queue) -> None:
    """Fact 12: the ticker is judged by its ticks, not by who calls it."""
    queue.subscribe("app")
    queue.send_and_tick(1)
    queue.consume("app")

    misled(
        {row["check_name"]: row["status"] for row in told.ask("queue_health()") if row["queue_name"] != "q"},
        {"pg_cron_ticker": "critical", "pg_cron_maint": "critical"},
    )

    rows = queue.ask("queue_health()")
    assert [row for row in rows if row["status"] != "ok"] == []
    assert [row for row in rows if "cron" in row["check_name"]] == []


def test_a_rotation_under_way_is_ok(queue: Queue, told: Queue) -> None:
    """Fact 13: its second step follows in a transaction of its own, seconds later."""
    queue.db.execute("select pgque.set_queue_config('q', 'rotation_period', '30 seconds')")
    queue.subscribe("app")
    queue.send_and_tick(1)
    queue.consume("app")
    queue.wait(31)
    assert one(queue.db, "select pgque.maint_rotate_tables_step1('q') as done")["done"] == 1

    misled(told.health()["rotation_health"], "warning")

    assert queue.health()["rotation_health"] == "ok"


def test_a_blocked_rotation_names_the_consumer_that_blocks_it(queue: Queue, told: Queue) -> None:
    """Fact 13: when rotation is overdue, the time of the last one doesn't say what to do."""
    queue.db.execute("select pgque.set_queue_config('q', 'rotation_period', '30 seconds')")
    queue.subscribe("quick")
    queue.subscribe("slow")
    queue.send_and_tick(5)
    queue.consume("quick")
    queue.consume("slow")
    queue.wait(31)
    assert one(queue.db, "select pgque.maint_rotate_tables_step1('q') as done")["done"] == 1
    queue.db.execute("select pgque.maint_rotate_tables_step2()")
    queue.send_and_tick(5)
    queue.consume("quick")
    queue.wait(130)
    assert one(queue.db, "select pgque.maint_rotate_tables_step1('q') as done")["done"] == 0

    misled(told.detail("rotation_health").startswith("last rotation: "), True)
    misled("slow" in told.detail("rotation_health"), False)

    assert queue.health()["rotation_health"] == "warning"
    assert "blocked by consumer slow" in queue.detail("rotation_health")


# ---- flow ----


def test_throughput_is_the_true_rate_when_ticks_are_rarer_than_buckets(queue: Queue, told: Queue) -> None:
    """Fact 14: a tick's events came in the time since the tick before it, not in one bucket."""
    for _ in range(10):
        queue.wait(60)
        queue.send_and_tick(600)
    call = "throughput('q', '15 minutes', '30 seconds')"

    misled({round(row["events_per_sec"]) for row in told.ask(call)}, {20})

    rows = queue.ask(call)
    assert sum(row["events"] for row in rows) == 6000
    assert all(9 < row["events_per_sec"] <= 10 for row in rows), rows


def test_no_rate_and_no_backlog_is_negative_after_a_sequence_reset(queue: Queue, told: Queue) -> None:
    """Fact 14: event ids that begin anew are no flow backwards."""
    queue.subscribe("app")
    queue.send_and_tick(600)
    sequence = one(queue.db, "select queue_event_seq as name from pgque.queue")["name"]
    queue.db.execute("select setval(%s::regclass, 1)", (sequence,))
    queue.wait(61)
    assert queue.tick() is not None
    call = "throughput('q', '1 hour', '1 second')"

    misled(min(row["events"] for row in told.ask(call)), -599)
    misled(told.stats()["events_per_sec"] < 0, True)

    assert [row["events"] for row in queue.ask(call)] == [600, 0]
    assert all(row["events_per_sec"] >= 0 for row in queue.ask(call))
    assert queue.stats()["events_per_sec"] in (0, None)
    assert min(queue.metrics().values()) >= 0


def test_failures_that_left_no_record_are_unknown_not_none(queue: Queue, told: Queue) -> None:
    """Fact 15: the time in retry_queue is when an event is due, and the row goes with its redelivery."""
    queue.subscribe("app")
    queue.send_and_tick(100)
    fail_all(queue, "app", again_after=3600)
    call = "error_rate('q', '2 hours', '5 minutes')"

    misled({row["retries"] for row in told.ask(call)}, {0})  # they are due in the future
    queue.wait(3630)
    misled([row["retries"] for row in told.ask(call)][-2], 100)  # but they failed an hour ago
    queue.db.execute("select pgque.maint_retry_events()")
    misled({row["retries"] for row in told.ask(call)}, {0})  # forgotten

    assert {row["retries"] for row in queue.ask(call)} == {None}


def test_failures_stand_where_they_happened_once_they_are_recorded(counted: Queue) -> None:
    """Fact 15: in the bucket of their failure, redelivered or not."""
    counted.db.execute("update pgque.instrumentation_state set history_from = now() - interval '3 hours'")
    counted.send_and_tick(100)
    redeliver(counted, "app")

    failed = [row["retries"] for row in counted.ask("error_rate('q', '2 hours', '5 minutes')")]
    assert sum(failed) == sum(failed[-2:]) == 100


def test_buckets_have_a_limit(queue: Queue, told: Queue) -> None:
    """Fact 15: a slip in the bucket size must not become a million rows."""
    misled(len(told.ask("error_rate('q', '1 day', '1 second')")), 86_401)

    with pytest.raises(psycopg.errors.RaiseException, match="more than 10000 buckets"):
        queue.ask("error_rate('q', '1 day', '1 second')")


# ---- who may ask ----


def test_metrics_are_closed_to_the_public_and_open_to_the_monitor(
    queue: Queue, told: Queue, pack_database: Database
) -> None:
    """Fact 16: first everyone may read them, and after the engine's next install nobody."""
    queue.subscribe("app")
    with acting_as(queue.db, "passer_by", "usage on schema pgque, spec_text"):
        misled(len(told.ask("otel_metrics()")), 4)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            queue.ask("otel_metrics()")

    # What the engine's roles file does whenever it is run, as the function reference has it.
    queue.db.execute("revoke execute on all functions in schema spec_text from public")
    pack_database.install(ENGINE_INSTALL)
    pack_database.install(PACK_INSTALL)
    with acting_as(queue.db, "watcher", "usage on schema spec_text", "pgque_monitor, pgque_reader"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            told.ask("otel_metrics()")
        for call in CONTRACT:
            assert isinstance(queue.ask(call), list)
    with (
        acting_as(queue.db, "passer_by", "usage on schema pgque"),
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        queue.ask("otel_metrics()")


def test_no_function_depends_on_the_callers_search_path(db: Connection, engine_database: Database) -> None:
    """Fact 17: it is pinned to pg_catalog first and pg_temp last, or all names were bound at creation."""
    query = (
        "select p.oid::regprocedure::text as signature, p.proconfig as settings,"
        " p.prosqlbody is not null and not p.prosecdef as is_bound"
        " from pg_catalog.pg_proc p where p.pronamespace = 'pgque'::regnamespace"
    )
    engine = {signature for signature, *_ in engine_database.connect().execute(query)}
    pack = [row for row in db.execute(query) if row["signature"] not in engine]
    assert len(pack) > len(CONTRACT)
    pinned = "search_path=pg_catalog, pg_temp"
    open_ones = [r["signature"] for r in pack if not r["is_bound"] and pinned not in (r["settings"] or ())]
    assert open_ones == []


# For each function of pg_catalog that anything in schema pgque calls, and for each operator between two
# values of an everyday type, one in schema pgque that gives away with whose rights it was run.
_SHADOWS_IN_SCHEMA = """
do $$
declare
    original record;
    trap constant text := $trap$begin raise exception '%s ran with the rights of %%', current_user; end$trap$;
begin
    for original in
        select p.oid, p.proname as name, pg_get_function_result(p.oid) as result,
            pg_get_function_identity_arguments(p.oid) as arguments
        from pg_proc p
        where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
            and not p.proargtypes::oid[] && array['"any"', 'internal', 'cstring']::regtype[]::oid[]
            and not exists (
                select from pg_proc own
                where own.pronamespace = 'pgque'::regnamespace
                    and own.proname = p.proname and own.proargtypes = p.proargtypes
            )
            and exists (
                select from pg_proc caller
                where caller.pronamespace = 'pgque'::regnamespace
                    and caller.prosrc ~ ('\\m' || p.proname || '\\s*\\(')
            )
    loop
        execute format('create function pgque.%I(%s) returns %s language plpgsql as %L',
            original.name, original.arguments, original.result, format(trap, original.name));
    end loop;
    for original in
        select o.oid, o.oprname as name, o.oprleft::regtype as operand, o.oprresult::regtype as result
        from pg_operator o
        where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprleft = o.oprright
            and o.oprleft = any (
                array['timestamptz', 'interval', 'int4', 'int8', 'numeric', 'text', 'xid8']::regtype[])
    loop
        execute format('create function pgque.shadow_%s(%s, %2$s) returns %s language plpgsql as %L',
            original.oid, original.operand, original.result, format(trap, 'operator'));
        execute format('create operator pgque.%s (leftarg = %s, rightarg = %2$s, function = pgque.shadow_%s)',
            original.name, original.operand, original.oid);
    end loop;
end
$$
"""

# A temporary schema needs no right to create anywhere, and its types and tables come first by default.
_SHADOWS_IN_TEMP = """
create function pg_temp.trap() returns boolean language plpgsql as $$
begin
    raise exception 'pg_temp ran with the rights of %', current_user;
end
$$;
create function pg_temp.now() returns timestamptz language plpgsql as $$
begin
    raise exception 'pg_temp ran with the rights of %', current_user;
end
$$;
create temporary table queue (like pgque.queue);
create temporary table tick (like pgque.tick);
create temporary table subscription (like pgque.subscription);
create temporary table consumer (like pgque.consumer);
create domain pg_temp.regclass as pg_catalog.regclass check (pg_temp.trap());
create domain pg_temp.timestamptz as pg_catalog.timestamptz check (pg_temp.trap());
create domain pg_temp.pg_snapshot as pg_catalog.pg_snapshot check (pg_temp.trap());
create domain pg_temp.jsonb as pg_catalog.jsonb check (pg_temp.trap());
create domain pg_temp.int4 as pg_catalog.int4 check (pg_temp.trap());
create domain pg_temp.text as pg_catalog.text check (pg_temp.trap());
"""


def late_ticker(queue: Queue) -> None:
    """An open batch, events after the last tick, and a ticker that is late: every function has work to do."""
    queue.subscribe("app")
    queue.send_and_tick(3)
    assert len(queue.receive("app")) == 3
    queue.wait(60)
    queue.send(3)
    queue.wait(60)


def everything_is_answered(queue: Queue) -> None:
    for call in CONTRACT:
        queue.ask(call)
    assert queue.stats()["depth"] == 6
    assert queue.health()["ticker_running"] == "critical"


def test_no_function_in_the_engines_schema_is_run_for_the_systems_own(queue: Queue, told: Queue) -> None:
    """Fact 17: who may create in the schema would run code with the rights of the owner, or of the poller."""
    late_ticker(queue)
    grants = ("usage on schema spec_text", "usage, create on schema pgque", "pgque_monitor")
    with acting_as(queue.db, "intruder", *grants):
        queue.db.execute(_SHADOWS_IN_SCHEMA)
        with pytest.raises(psycopg.errors.RaiseException) as attack:
            told.ask("otel_metrics()")
        misled("ran with the rights of postgres" in str(attack.value), True)

        everything_is_answered(queue)
        queue.db.execute("reset role")
        everything_is_answered(queue)


def test_no_type_or_table_of_the_callers_session_is_taken_for_a_real_one(queue: Queue, told: Queue) -> None:
    """Fact 17: a search path that doesn't name pg_temp has it first."""
    late_ticker(queue)
    # Hardened as section 3.4.5 of the specification wants it; its only fault is to name a type.
    queue.db.execute(
        "create function spec_text.hardened() returns void language plpgsql security definer"
        " set search_path = pgque, pg_catalog as 'begin perform 1::text; end'"
    )
    with acting_as(queue.db, "intruder", "usage on schema spec_text", "pgque_monitor"):
        queue.db.execute(_SHADOWS_IN_TEMP)
        with pytest.raises(psycopg.errors.DatatypeMismatch):  # its int4 is the caller's own
            told.ask("queue_stats()")
        with pytest.raises(psycopg.errors.RaiseException) as attack:
            told.ask("hardened()")
        misled("ran with the rights of postgres" in str(attack.value), True)

        everything_is_answered(queue)


# ---- what it costs the database ----


def lay_dead_letters(queue: Queue, count: int, size: int) -> None:
    """That many dead letters of that many bytes instead of those there were, stored uncompressed."""
    queue.db.execute("truncate pgque.dead_letter")
    queue.db.execute("alter table pgque.dead_letter alter ev_data set storage external")
    queue.db.execute(
        "insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, dl_time, ev_id, ev_time, ev_data)"
        " select s.sub_queue, s.sub_consumer, now() - interval '1 day', e, now(), repeat('x', %s)"
        " from pgque.subscription s, generate_series(1, %s) e",
        (size, count),
    )
    queue.db.execute("vacuum analyze pgque.dead_letter")


def test_counting_dead_letters_reads_no_payload(queue: Queue, told: Queue) -> None:
    """Fact 18: count(dl.*) makes a whole row of each, payload fetched from where large values are kept."""
    queue.subscribe("app")
    lay_dead_letters(queue, 500, size=16)
    small, told_small = buffers(queue, "queue_health()"), buffers(told, "queue_health()")
    lay_dead_letters(queue, 500, size=16_000)
    large, told_large = buffers(queue, "queue_health()"), buffers(told, "queue_health()")

    misled(told_large > told_small + 500 * 4, True)

    assert large <= small


def test_counting_dead_letters_has_a_bounded_cost(queue: Queue, told: Queue) -> None:
    """Fact 18: each poll would read all of them again."""
    queue.subscribe("app")
    lay_dead_letters(queue, 20_000, size=16)
    few, told_few = buffers(queue, "otel_metrics()"), buffers(told, "otel_metrics()")
    lay_dead_letters(queue, 60_000, size=16)
    many, told_many = buffers(queue, "otel_metrics()"), buffers(told, "otel_metrics()")

    misled(told_many > told_few + 200, True)

    assert many <= few * 1.1


def test_cost_does_not_grow_with_the_ticks_kept(queue: Queue, told: Queue) -> None:
    """The cost below the facts: a slow consumer keeps ticks by the thousand, and max() reads them all."""
    queue.subscribe("app")
    queue.send_and_tick(5)
    cost = []
    for ticks in (300, 20_000):
        queue.db.execute(
            "insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq)"
            " select t.tick_queue, t.tick_id + i, t.tick_time, t.tick_event_seq + i"
            " from (select * from pgque.tick order by tick_id desc limit 1) t, generate_series(1, %s) i",
            (ticks,),
        )
        queue.db.execute("vacuum analyze pgque.tick")
        cost.append((buffers(queue, "otel_metrics()"), buffers(told, "otel_metrics()")))
    (few, told_few), (many, told_many) = cost

    misled(told_many > told_few * 3, True)

    assert many <= few * 1.1
