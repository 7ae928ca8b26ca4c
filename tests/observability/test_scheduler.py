"""pg_cron's jobs are judged where there are any: the real jobs, by their real runs.

Debian's PostgreSQL 15 has pg_cron 1.4, on which these tests run. It starts what is scheduled `@reboot` at
once, so nobody waits for the full minute. All other runs are laid by hand, of jobs that pg_cron itself never
starts: it knows no schedule of 60 seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.rows import dict_row

from pgque_exporter.demo.cluster import Cluster
from pgque_exporter.overview import queues
from tests.exporter.harness import poll
from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, run_file, wait_until
from tests.support.debian import EXTENSIONS, postgres
from tests.support.observed import Connection, one
from tests.support.tools import Unavailable

DURATION = "pgque.ticker.duration_seconds"
CRON_DATABASE = "postgres"  # where pg_cron keeps its jobs unless told otherwise
TICK = "select pgque.ticker()"


@contextmanager
def cron_cluster(**settings: str) -> Iterator[Cluster]:
    """A server with pg_cron; engine and pack are in its database before the extension is."""
    try:
        server = postgres(extensions=EXTENSIONS)
    except Unavailable as error:
        pytest.skip(f"pg_cron: {error}")
    preload = {"shared_preload_libraries": "pg_cron"}
    with Cluster(server.bindir, env=server.env, settings=preload | settings) as cluster:
        run_file(cluster.dsn(CRON_DATABASE), ENGINE_INSTALL)
        run_file(cluster.dsn(CRON_DATABASE), PACK_INSTALL)
        with connected(cluster) as db:
            db.execute("create extension pg_cron")
        yield cluster


@contextmanager
def connected(cluster: Cluster, user: str = "postgres") -> Iterator[Connection]:
    with psycopg.connect(
        cluster.dsn(CRON_DATABASE, user), autocommit=True, row_factory=dict_row
    ) as connection:
        yield connection


@pytest.fixture(scope="module")
def shared_cron() -> Iterator[Cluster]:
    with cron_cluster() as cluster:
        yield cluster


@pytest.fixture
def cron(shared_cron: Cluster) -> Iterator[Connection]:
    """A database with pg_cron, without jobs and runs."""
    with connected(shared_cron) as db:
        db.execute("truncate cron.job, cron.job_run_details")
        db.execute("select setval('cron.jobid_seq', 1, false), setval('cron.runid_seq', 1, false)")
        db.execute("update pgque.config set ticker_job_id = null, maint_job_id = null")
        yield db


def schedule(
    db: Connection,
    command: str = TICK,
    schedule: str = "60 seconds",
    *,
    database: str = CRON_DATABASE,
    active: bool = True,
) -> int:
    """A job laid by hand that pg_cron never starts; its id."""
    row = one(
        db,
        "insert into cron.job (schedule, command, database, active) values (%s, %s, %s, %s) returning jobid",
        schedule, command, database, active,
    )
    return int(row["jobid"])


def ran(db: Connection, job: int, status: str = "succeeded", *, ago: float = 10, took: float = 0.25) -> None:
    """A run of a job that ended so many seconds ago."""
    db.execute(
        "insert into cron.job_run_details (jobid, database, username, status, start_time, end_time)"
        " values (%s, %s, 'postgres', %s, now() - make_interval(secs => %s),"
        " case when %s then now() - make_interval(secs => %s) end)",
        (job, CRON_DATABASE, status, ago + took, status in ("succeeded", "failed"), ago),
    )


def health(db: Connection) -> dict[str, str]:
    """Status by check, as queue_health() has it."""
    rows = db.execute("select check_name, status from pgque.queue_health() where queue_name = 'system'")
    return {row["check_name"]: row["status"] for row in rows}


def detail(db: Connection, check: str = "pg_cron_ticker") -> str:
    query: LiteralString = "select detail from pgque.scheduler_health() where check_name = %s"
    return str(one(db, query, check)["detail"])


def durations(db: Connection) -> list[float]:
    rows = db.execute(
        "select value, labels from pgque.otel_metrics() where metric_name = %s", (DURATION,)
    ).fetchall()
    assert [row["labels"] for row in rows] == [{}] * len(rows)
    return [float(row["value"]) for row in rows]


# --- where pg_cron isn't installed, on every server ---


def test_without_pg_cron_there_is_nothing_to_judge(db: Connection) -> None:
    assert health(db) == {}
    assert durations(db) == []


def test_a_configured_job_without_pg_cron_is_critical(db: Connection) -> None:
    db.execute("update pgque.config set ticker_job_id = 7")
    assert health(db) == {"pg_cron_ticker": "critical"}
    assert "job 7 is configured, but pg_cron is not installed" in detail(db)
    db.execute("update pgque.config set ticker_job_id = null, maint_job_id = 8")
    assert health(db) == {"pg_cron_maint": "critical"}


def test_tables_that_only_look_like_those_of_pg_cron_are_left_alone(db: Connection) -> None:
    """Else whoever may create a schema could have code run with the rights of the pack's owner."""
    db.execute(
        "create schema cron;"
        " create function cron.trap() returns bigint language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$;"
        " create view cron.job as select cron.trap() as jobid, '* * * * *' as schedule,"
        " 'select pgque.ticker()' as command, current_database()::text as database, true as active;"
        " create table cron.job_run_details (runid bigint); create sequence cron.runid_seq"
    )
    assert health(db) == {}


# --- the jobs ---


def test_pg_cron_without_jobs_of_ours_is_not_judged(cron: Connection) -> None:
    """Nor is the engine's own configuration as long as it names no job."""
    schedule(cron, "vacuum")
    schedule(cron, TICK, database="other")
    assert health(cron) == {}
    assert durations(cron) == []


@pytest.mark.parametrize(
    ("command", "tasks", "single"),
    [
        ("select pgque.ticker()", ["ticker"], True),
        ("SELECT * FROM pgque.ticker ( );", ["ticker"], True),
        ("SET statement_timeout = '1500ms'; SELECT pgque.ticker()", ["ticker"], True),
        ('select * from "pgque".ticker();', ["ticker"], True),
        ("call pgque.ticker_loop()", ["ticker"], False),
        ("select pgque.ticker('orders')", ["ticker"], False),
        ("select pgque.ticker(); select pg_sleep(1); select pgque.ticker()", ["ticker"], False),
        ("select pgque.ticker() from generate_series(1, 10)", ["ticker"], False),
        ("select pgque.maint()", ["maint"], False),
        ("select pgque.maint_retry_events()", ["maint"], False),
        ("select pgque.maint_rotate_tables_step2()", ["maint"], False),
        ("select pgque.ticker(); select pgque.maint()", ["maint", "ticker"], False),
        ("select mypgque.ticker()", [], False),
        ("select my.pgque.ticker_count", [], False),
        ("select pgque.queue_stats()", [], False),
    ],
)
def test_jobs_are_known_by_what_they_call(
    cron: Connection, command: str, tasks: list[str], single: bool
) -> None:
    schedule(cron, command)
    rows = cron.execute("select task, single_tick from pgque.scheduled_jobs() order by task").fetchall()
    assert [row["task"] for row in rows] == tasks
    assert [row["single_tick"] for row in rows if row["task"] == "ticker"] == [single] * ("ticker" in tasks)


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("10 seconds", timedelta(seconds=10)),
        ("1 second", timedelta(seconds=1)),
        ("* * * * *", timedelta(minutes=1)),
        (" */5  * * * * ", timedelta(minutes=5)),
        ("0,30 * * * *", timedelta(hours=1)),
        ("7 */2 * * *", timedelta(days=1)),
        ("*/5 * * * 1", None),
        ("0 0 1 * *", None),
        ("@hourly", None),
        ("99999999999 seconds", None),
    ],
)
def test_how_often_a_job_is_to_run(cron: Connection, text: str, period: timedelta | None) -> None:
    schedule(cron, schedule=text)
    assert one(cron, "select period from pgque.scheduled_jobs()")["period"] == period


# --- how they are judged ---


def test_both_checks_are_ok_while_the_jobs_run(cron: Connection) -> None:
    for command in (TICK, "select pgque.maint()"):
        ran(cron, schedule(cron, command))
    assert health(cron) == {"pg_cron_ticker": "ok", "pg_cron_maint": "ok"}
    assert re.fullmatch(r"job 1 last succeeded 00:00:\d\d ago", detail(cron))
    assert durations(cron) == [0.25]


def test_a_job_that_has_not_run_yet_is_no_trouble(cron: Connection) -> None:
    schedule(cron)
    assert health(cron) == {"pg_cron_ticker": "ok"}
    assert durations(cron) == []


def test_a_job_at_work_is_not_late(cron: Connection) -> None:
    job = schedule(cron, "call pgque.ticker_loop()")
    ran(cron, job, ago=1000)
    ran(cron, job, "running", ago=500)
    assert health(cron) == {"pg_cron_ticker": "ok"}
    assert "has been running for 00:08:" in detail(cron)


@pytest.mark.parametrize(
    ("text", "ago", "status"),
    [
        ("120 seconds", 400, "ok"),
        ("120 seconds", 425, "critical"),
        ("60 seconds", 200, "ok"),
        ("60 seconds", 245, "critical"),
        ("3600 seconds", 10_000, "ok"),
        ("0 0 30 2 *", 10_000_000, "ok"),  # when it is due is not told by the schedule
    ],
)
def test_a_job_that_has_not_run_for_three_periods_is_critical(
    cron: Connection, text: str, ago: float, status: str
) -> None:
    job = schedule(cron, schedule=text)
    ran(cron, job, ago=ago)
    assert health(cron) == {"pg_cron_ticker": status}
    assert ("is pg_cron running?" in detail(cron)) is (status == "critical")
    assert (durations(cron) == []) is (status == "critical"), "a dead ticker has no duration"


def test_one_failed_run_warns_and_a_later_success_clears_it(cron: Connection) -> None:
    job = schedule(cron)
    ran(cron, job, ago=130)
    ran(cron, job, "failed", ago=70, took=1.5)
    assert health(cron) == {"pg_cron_ticker": "warning"}
    assert re.fullmatch(r"job 1 failed 00:01:\d\d ago: see cron.job_run_details", detail(cron))
    assert durations(cron) == [1.5]
    ran(cron, job, ago=10)
    assert health(cron) == {"pg_cron_ticker": "ok"}


@pytest.mark.parametrize(
    ("failed_ago", "status"),
    [
        ([150, 90, 30], "critical"),
        ([90, 30], "warning"),
        ([30, 25, 20, 15, 10], "warning"),  # five times, but within a minute: a restart or a lock
        ([70, 60, 50, 40, 30, 20, 10], "critical"),
    ],
)
def test_failing_again_and_again_is_critical_after_a_minute(
    cron: Connection, failed_ago: list[float], status: str
) -> None:
    job = schedule(cron)
    ran(cron, job, ago=200)
    for ago in failed_ago:
        ran(cron, job, "failed", ago=ago)
    assert health(cron) == {"pg_cron_ticker": status}
    assert f"failed {len(failed_ago)} times in a row" in detail(cron)


def test_a_job_turned_off_warns_unless_another_does_its_work(cron: Connection) -> None:
    ran(cron, schedule(cron, active=False))
    assert health(cron) == {"pg_cron_ticker": "warning"}
    assert durations(cron) == []
    ran(cron, schedule(cron))
    assert health(cron) == {"pg_cron_ticker": "ok"}


def test_the_worst_of_several_jobs_counts(cron: Connection) -> None:
    for command in ("select pgque.maint()", "select pgque.maint_retry_events()"):
        ran(cron, schedule(cron, command))
    ran(cron, 2, "failed")
    assert health(cron) == {"pg_cron_maint": "warning"}
    assert detail(cron, "pg_cron_maint").startswith("job 2 ")


def test_a_configured_job_must_be_there_and_turned_on(cron: Connection) -> None:
    job = schedule(cron, "select my_own_ticker()")  # whatever it calls: the configuration names it
    cron.execute("update pgque.config set ticker_job_id = %s, maint_job_id = 99", (job,))
    assert health(cron) == {"pg_cron_ticker": "ok", "pg_cron_maint": "critical"}
    assert detail(cron, "pg_cron_maint") == "job 99 is configured, but pg_cron has no such job"
    schedule(cron, TICK)  # another one is no excuse
    cron.execute("update cron.job set active = false where jobid = %s", (job,))
    assert health(cron)["pg_cron_ticker"] == "critical"
    assert detail(cron) == f"job {job} is turned off"


# --- who may see what ---


def test_the_monitor_sees_the_outcome_and_not_the_jobs(cron: Connection) -> None:
    ran(cron, schedule(cron, "select pgque.ticker(), 'secret'"))
    cron.execute("set role pgque_monitor")
    cron.execute("begin read only")
    assert health(cron) == {"pg_cron_ticker": "ok"}
    assert "secret" not in str(cron.execute("select * from pgque.scheduled_jobs()").fetchall())
    cron.execute("rollback")
    for table in ("cron.job", "cron.job_run_details"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            cron.execute(f"select from {table}".encode())


@contextmanager
def owned_by_plain_role(db: Connection) -> Iterator[None]:
    """The pack belongs to a role that is no superuser, as on managed services."""
    db.execute("create role plain login")
    db.execute("grant usage on schema pgque to plain")
    db.execute("grant select on pgque.config to plain")
    db.execute("alter function pgque.scheduled_jobs() owner to plain")
    try:
        yield
    finally:
        db.execute("alter function pgque.scheduled_jobs() owner to postgres")
        db.execute("drop owned by plain; drop role plain")


def test_an_owner_that_is_no_superuser_judges_the_jobs_it_may_see(cron: Connection) -> None:
    ran(cron, schedule(cron))
    with owned_by_plain_role(cron):
        assert health(cron) == {}, "may not even enter the schema"
        cron.execute("update pgque.config set ticker_job_id = 1")
        assert health(cron) == {"pg_cron_ticker": "unknown"}
        cron.execute("grant usage on schema cron to plain")
        assert health(cron) == {"pg_cron_ticker": "unknown"}, "the job is somebody else's"
        assert durations(cron) == []

        cron.execute("update cron.job set username = 'plain'")
        cron.execute("update cron.job_run_details set username = 'plain'")
        assert health(cron) == {"pg_cron_ticker": "ok"}
        assert durations(cron) == [0.25]

        cron.execute("revoke select on sequence cron.runid_seq from public")
        try:
            assert health(cron) == {"pg_cron_ticker": "ok"}
            assert "its runs are not recorded" in detail(cron)
        finally:
            cron.execute("grant select on sequence cron.runid_seq to public")


def test_the_functions_are_closed_to_everybody_else(cron: Connection) -> None:
    cron.execute("create role somebody")
    try:
        cron.execute("grant usage on schema pgque to somebody")
        cron.execute("set role somebody")
        for name in ("scheduled_jobs", "scheduler_states", "scheduler_metrics", "scheduler_health"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                cron.execute(f"select * from pgque.{name}()".encode())
    finally:
        cron.execute("reset role")
        cron.execute("drop owned by somebody; drop role somebody")


# --- what it costs ---


def buffers(db: Connection) -> int:
    """Pages that one call touches; the first call also fills the session's caches."""
    query: LiteralString = (
        "explain (analyze, buffers, timing off, format json) select * from pgque.scheduler_health()"
    )
    db.execute(query)
    plan: Any = one(db, query)["QUERY PLAN"][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_the_cost_does_not_grow_with_the_runs_on_record(cron: Connection) -> None:
    ticker, other = schedule(cron), schedule(cron, "vacuum")

    def lay(count: int) -> None:
        # In no order of time and place, as after years of deleting old ones.
        cron.execute(
            "insert into cron.job_run_details"
            " (runid, jobid, database, username, status, start_time, end_time)"
            " select i, case when i %% 20 = 0 then %s else %s end, current_database(), 'postgres',"
            " 'succeeded', now(), now() from generate_series(1, %s) i order by hashint8(i)",
            (ticker, other, count),
        )
        cron.execute("select setval('cron.runid_seq', %s)", (count,))
        cron.execute("vacuum analyze cron.job_run_details")

    lay(2000)
    few = buffers(cron)
    cron.execute("truncate cron.job_run_details")
    lay(200_000)
    assert health(cron) == {"pg_cron_ticker": "ok"}
    many = buffers(cron)
    # 1000 runs, each on a page of its own at worst, and as many steps through the index.
    assert few < many < few + 1100, (few, many)


# --- real runs, and settings that only a start of the server can make ---


def test_real_jobs_and_their_real_runs() -> None:
    with cron_cluster() as cluster:
        with connected(cluster) as db:
            db.execute("select cron.schedule('ticker', '@reboot', 'select pgque.ticker()')")
            db.execute("select cron.schedule('maint', '@reboot', 'select pgque.maint(''nope'')')")
        cluster.stop()
        cluster.start()
        with connected(cluster) as db:
            query: LiteralString = "select from cron.job_run_details where end_time is not null"
            wait_until(lambda: len(db.execute(query).fetchall()) == 2, what="pg_cron runs both jobs")

            assert health(db) == {"pg_cron_ticker": "ok", "pg_cron_maint": "warning"}
            assert "job 1 last succeeded" in detail(db)
            assert "job 2 failed" in detail(db, "pg_cron_maint")
            query = "select end_time - start_time as took from cron.job_run_details where jobid = 1"
            took = one(db, query)["took"].total_seconds()
            assert durations(db) == [took]

            snapshot = poll(cluster.dsn(CRON_DATABASE)).snapshot
            found = {family.metric.name: family.series for family in snapshot.families}
            assert [series.value for series in found[DURATION]] == [took]
            assert [(check.queue, check.check, check.status) for check in snapshot.checks] == [
                ("system", "pg_cron_maint", "warning")
            ]
            assert queues(snapshot) == ()

            db.execute("select cron.alter_job(1, active => false)")
            db.execute("select cron.unschedule('maint')")
            assert health(db) == {"pg_cron_ticker": "warning"}
            db.execute("drop extension pg_cron")
            assert health(db) == {}


def test_where_runs_are_not_recorded_old_ones_prove_nothing() -> None:
    with cron_cluster(**{"cron.log_run": "off"}) as cluster, connected(cluster) as db:
        job = schedule(db)
        ran(db, job, ago=100_000)
        assert health(db) == {"pg_cron_ticker": "ok"}
        assert detail(db) == f"job {job} is scheduled; its runs are not recorded"
        assert durations(db) == []


def test_jobs_left_in_a_database_that_pg_cron_serves_no_longer() -> None:
    with cron_cluster() as cluster:
        with connected(cluster) as db:
            ran(db, schedule(db))
            assert health(db) == {"pg_cron_ticker": "ok"}
            db.execute("alter system set cron.database_name = 'elsewhere'")
        cluster.stop()
        cluster.start()
        with connected(cluster) as db:
            assert health(db) == {"pg_cron_ticker": "warning"}
            db.execute("update pgque.config set ticker_job_id = 1")
            assert health(db) == {"pg_cron_ticker": "critical"}
            assert "pg_cron is not loaded, or serves another database" in detail(db)
