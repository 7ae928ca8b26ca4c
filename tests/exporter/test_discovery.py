"""Servers whose databases are found: what joins, what leaves, and what is passed over."""

from __future__ import annotations

import logging

import psycopg
import pytest

from pgque_exporter.config import DiscoveryConfig
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.exporter.harness import ToyPack, config, running, target
from tests.support.database import Database, new_database, wait_until


def server(cluster: Cluster, *include: str, **options: object) -> DiscoveryConfig:
    """The server under the name db1, looked at often."""
    return DiscoveryConfig(target(cluster.dsn(), "db1", **options), include, interval=0.2)


def test_databases_with_a_pack_join_and_gone_ones_leave(
    cluster: Cluster, database: Database, toy: ToyPack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgque_exporter.discovery")
    toy.add("pgque.queue.depth", 7, queue="q")
    with new_database(cluster) as bare:
        discovery = server(cluster, database.name, bare.name)
        with running(config(discoveries=(discovery,))) as service:
            shop, plain = f"db1/{database.name}", f"db1/{bare.name}"
            series = f'pgque_queue_depth{{engine="toy",database="{shop}",queue="q"}}'
            wait_until(lambda: service.sample(series) == 7, what="the database with a pack is polled")
            wait_until(
                lambda: any(plain in record.getMessage() for record in caplog.records),
                what="the one without is noted",
            )
            assert service.databases() == {"db1", shop}
            assert service.sample('pgque_up{database="db1"}') == 1
            assert service.get("/healthz").status == 200
            ToyPack(bare.connect()).add("pgque.queue.depth", 3, queue="q")
            wait_until(lambda: service.databases() == {"db1", shop, plain}, what="the new one joins")
            wait_until(
                lambda: service.sample(f'pgque_up{{database="{plain}"}}') == 1, what="and is polled well"
            )
            bare.close()
            with psycopg.connect(cluster.dsn(), autocommit=True) as admin:
                admin.execute(f"drop database {bare.name} with (force)")
                wait_until(lambda: service.databases() == {"db1", shop}, what="the dropped one vanishes")
                admin.execute(f"create database {bare.name}")  # for the end of the block to drop
            assert service.get("/healthz").status == 200
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count(f"{plain}: not polled: it has no pack") <= 2  # at first, and perhaps at the end


def test_a_database_without_a_pack_is_noted_once(
    cluster: Cluster, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgque_exporter.discovery")
    connection = database.connect()
    with running(config(discoveries=(server(cluster, database.name),))) as service:
        before = _visits(connection, database)
        wait_until(lambda: _visits(connection, database) >= before + 3, what="it is looked at repeatedly")
        assert service.databases() == {"db1"}
        assert service.get("/healthz").status == 200
    noted = [record for record in caplog.records if "no pack" in record.getMessage()]
    assert [record.levelname for record in noted] == ["INFO"]


def _visits(connection: psycopg.Connection[tuple[object, ...]], database: Database) -> int:
    connection.execute("select pg_stat_clear_snapshot()")
    row = connection.execute("select sessions from pg_stat_database where datname = %s", (database.name,))
    [(sessions,)] = row.fetchall()
    assert isinstance(sessions, int)
    return sessions


def test_a_pack_that_is_removed_takes_its_database_along(
    cluster: Cluster, database: Database, toy: ToyPack
) -> None:
    with running(config(discoveries=(server(cluster, database.name),))) as service:
        name = f"db1/{database.name}"
        wait_until(lambda: service.databases() == {"db1", name}, what="polled")
        database.connect().execute("drop schema toy_observability cascade")
        wait_until(lambda: service.databases() == {"db1"}, what="no longer polled")
        assert service.get("/healthz").status == 200


def test_templates_and_closed_databases_are_passed_over(cluster: Cluster, database: Database) -> None:
    with psycopg.connect(cluster.dsn(), autocommit=True) as admin:
        ToyPack(database.connect())
        database.close()
        admin.execute(f"create role guest_{database.name} login")
        admin.execute(f"revoke connect on database {database.name} from public")
        try:
            guest = target(cluster.dsn(user=f"guest_{database.name}"), "db1")
            found = DiscoveryConfig(guest, (database.name, "template*"), interval=0.2)
            with running(config(discoveries=(found,))) as service:
                wait_until(lambda: service.get("/readyz").status == 200, what="looked at")
                assert service.databases() == {"db1"}
                admin.execute(f"grant connect on database {database.name} to public")
                # Without the right to run the pack: that is worth knowing.
                wait_until(
                    lambda: service.sample(f'pgque_up{{database="db1/{database.name}"}}') == 0,
                    what="found once it lets us in",
                )
                failure = service.get("/healthz").json["targets"][1]["error"]
                assert failure["kind"] == "permission"
        finally:
            admin.execute(f"drop role guest_{database.name}")


@pytest.mark.slow
def test_a_server_that_is_down_says_so_and_its_databases_stay() -> None:
    with Cluster(embedded_bindir()) as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            ToyPack(connection).add("pgque.queue.depth", 1, queue="q")
        with running(config(discoveries=(server(cluster, "*"),))) as service:
            wait_until(lambda: service.sample('pgque_up{database="db1/postgres"}') == 1, what="found")
            cluster.stop()
            wait_until(lambda: service.sample('pgque_up{database="db1"}') == 0, what="the server is down")
            wait_until(lambda: service.sample('pgque_up{database="db1/postgres"}') == 0, what="its database")
            checks = [one["checks"][0]["check"] for one in service.get("/healthz").json["targets"]]
            assert checks == ["database", "database"]
            cluster.start()
            wait_until(lambda: service.sample('pgque_up{database="db1/postgres"}') == 1, what="up again")
            wait_until(lambda: service.sample('pgque_up{database="db1"}') == 1, what="the server too")


def test_a_configured_target_keeps_its_name(cluster: Cluster, database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    name = f"db1/{database.name}"
    mine = target(database.dsn(), name, labels=(("origin", "file"),))
    with running(config(mine, discoveries=(server(cluster, database.name),))) as service:
        wait_until(lambda: service.sample('pgque_up{database="db1"}') == 1, what="searched")
        assert service.sample(f'pgque_queue_depth{{engine="toy",database="{name}",queue="q"}}') is None
        wait_until(
            lambda: service.sample(
                f'pgque_queue_depth{{engine="toy",database="{name}",origin="file",queue="q"}}'
            ),
            what="polled as configured",
        )
