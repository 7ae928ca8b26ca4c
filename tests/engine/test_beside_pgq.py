"""The same history through PgQ 3.5 and through this engine, in one database: the same answers."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.database import ENGINE_INSTALL, Connection, Database
from tests.support.queue import rows, value

CONSUMERS = ("one", "two", "three")
STEPS = 500


@pytest.fixture
def both(pgq_database: Database) -> Database:
    """A database with both engines."""
    pgq_database.install(ENGINE_INSTALL)
    return pgq_database


@dataclass
class Side:
    """One queue of one engine. What it answers is told in terms that don't depend on ids."""

    db: Connection
    schema: str
    open_batches: dict[str, int] = field(default_factory=dict)

    def ask(self, call: str, *args: object) -> Any:
        return value(self.db, f"select {self.schema}.{call}", *args)

    def setup(self, settings: dict[str, str]) -> None:
        self.ask("create_queue('q')")
        for name, setting in settings.items():
            self.ask("set_queue_config('q', %s, %s)", name, setting)

    def send(self, kind: str, data: str) -> object:
        return self.ask("insert_event('q', %s, %s) > 0", kind, data)

    def tick(self) -> object:
        return self.ask("ticker('q')")

    def take(self, consumer: str) -> object:
        batch = self.ask("next_batch('q', %s)", consumer)
        if batch is None:
            return None
        self.open_batches[consumer] = batch
        return rows(
            self.db,
            f"select ev_data, ev_retry, ev_type from {self.schema}.get_batch_events(%s) order by ev_id",
            batch,
        )

    def retry_all(self, consumer: str) -> object:
        return self.ask("batch_retry(%s, 60)", self.open_batches[consumer])

    def retry(self, consumer: str, data: str) -> object:
        batch = self.open_batches[consumer]
        event = value(
            self.db, f"select ev_id from {self.schema}.get_batch_events(%s) where ev_data = %s", batch, data
        )
        return self.ask("event_retry(%s, %s, 60)", batch, event)

    def finish(self, consumer: str) -> object:
        return self.ask("finish_batch(%s)", self.open_batches.pop(consumer))

    def retry_due(self) -> object:
        self.db.execute(f"update {self.schema}.retry_queue set ev_retry_after = now() - interval '1 second'")
        moved = 0
        while part := self.ask("maint_retry_events()"):  # PgQ's takes ten at a time
            moved += part
        return moved

    def rotate(self) -> object:
        """Which table is current afterwards; PgQ's first half answers 0 whether it did something or not."""
        self.db.execute(
            f"update {self.schema}.queue set queue_switch_time = now() - queue_rotation_period * 2"
        )
        self.ask("maint_rotate_tables_step1('q')")
        self.ask("maint_rotate_tables_step2()")
        return value(self.db, f"select queue_cur_table from {self.schema}.queue")

    def state(self) -> object:
        """Positions, and what waits."""
        positions = rows(
            self.db,
            f"select co_name, sub_last_tick, sub_next_tick from {self.schema}.subscription"
            f" join {self.schema}.consumer on co_id = sub_consumer order by 1",
        )
        waiting = rows(
            self.db, f"select ev_data, ev_retry from {self.schema}.retry_queue order by 1, 2, ev_owner"
        )
        return positions, waiting


@pytest.mark.parametrize("seed", range(4))
def test_the_same_history_gives_the_same_batches_retries_and_rotations(both: Database, seed: int) -> None:
    rng = random.Random(seed)
    sides = [Side(both.connect(), "pgq"), Side(both.connect(), "pgque")]
    log: list[str] = []

    def same(what: str, *answers: object) -> Any:
        log.append(f"{what}: {answers[0]!r}")
        assert answers[0] == answers[1], "\n".join(log[-15:])
        return answers[0]

    for side in sides:
        side.setup({"ticker_max_count": "1", "rotation_period": "1 hour"})
        for consumer in CONSUMERS:
            side.ask("register_consumer('q', %s)", consumer)

    # To PgQ's ticker, a sequence that was never used looks as if one event had come.
    same("send", *(side.send("first", "0") for side in sides))
    counts = dict.fromkeys(("batch", "retry", "again", "rotation", "held"), 0)
    table = 0
    held: Connection | None = None
    for step in range(STEPS):
        action = rng.choices(
            ("send", "tick", "take", "finish", "retry", "due", "rotate", "hold", "consumer", "batch_retry",
             "catch up"),
            (30, 20, 20, 20, 30, 16, 8, 4, 1, 1, 4),
        )[0]
        consumer = rng.choice(CONSUMERS)
        opened = consumer in sides[0].open_batches
        if action == "send":
            for number in range(rng.randint(1, 4)):
                same("send", *(side.send(f"t{number}", f"{step}-{number}") for side in sides))
        elif action == "tick":
            same("tick", *(side.tick() for side in sides))
        elif action == "take":
            got = same(f"take {consumer}", *(side.take(consumer) for side in sides))
            counts["batch"] += bool(got)
            counts["again"] += any(event[1] for event in got or ())
        elif action == "finish" and opened:
            same(f"finish {consumer}", *(side.finish(consumer) for side in sides))
        elif action in ("retry", "batch_retry") and opened:
            events = rows(
                sides[0].db, "select ev_data from pgq.get_batch_events(%s)", sides[0].open_batches[consumer]
            )
            if action == "batch_retry":
                same("batch_retry", *(side.retry_all(consumer) for side in sides))
            elif events:
                data = rng.choice(events)[0]
                same(f"retry {data}", *(side.retry(consumer, data) for side in sides))
                counts["retry"] += 1
        elif action == "due":
            same("due", *(side.retry_due() for side in sides))
            # PgQ's ticker doesn't see that retries came back, this one does.
            same("send", *(side.send("beside retries", str(step)) for side in sides))
        elif action == "rotate":
            now = same("rotate", *(side.rotate() for side in sides))
            counts["rotation"] += now != table
            table = now
        elif action == "catch up":
            for name in CONSUMERS:
                while name in sides[0].open_batches or same(
                    f"take {name}", *(side.take(name) for side in sides)
                ) is not None:
                    same(f"finish {name}", *(side.finish(name) for side in sides))
        elif action == "hold":
            # One transaction writes to both, and stays open across ticks.
            if held is None:
                held = both.connect(autocommit=False)
                for side in sides:
                    value(held, f"select {side.schema}.insert_event('q', 'held', %s)", str(step))
                counts["held"] += 1
            else:
                rng.choice((held.commit, held.rollback))()
                held.close()
                held = None
        elif action == "consumer" and not opened:
            same("unregister", *(side.ask("unregister_consumer('q', %s)", consumer) for side in sides))
            same("register", *(side.ask("register_consumer('q', %s)", consumer) for side in sides))
        same("state", *(side.state() for side in sides))
    if held is not None:
        held.rollback()
    assert min(counts.values()) > 0, counts


TABLE = """
create table public.t (id int, "b key" text, note text, amount numeric, flag bool, primary key (id, "b key"))
"""
CHANGES = (
    """insert into public.t values (1, 'x y', 'a&b=c%d+e/f-g_h.i~ü''"\\', 1.50, true)""",
    "insert into public.t values (2, 'z', null, null, false)",
    "update public.t set note = 'changed'",
    "update public.t set amount = 7 where id = 1",
    "update public.t set id = id",
    "delete from public.t where id = 1",
)


@pytest.mark.parametrize(
    "arguments",
    [(), ("backup",), ("ignore=note",), ("pkey=id",), ("when=id = 1",),
     ("ev_type='x' || id", "ev_extra3=id + 1"), ("backup", "ignore=note,amount", "ev_extra4=note")],
    ids=str,
)
@pytest.mark.parametrize("function", ["logutriga", "jsontriga"])
def test_triggers_describe_a_change_alike(
    both: Database, function: str, arguments: tuple[str, ...]
) -> None:
    db = both.connect()
    db.execute(TABLE)
    given = ", ".join("'" + argument.replace("'", "''") + "'" for argument in ("q", *arguments))
    for schema in ("pgq", "pgque"):
        value(db, f"select {schema}.create_queue('q')")
        db.execute(
            f"create trigger by_{schema} after insert or update or delete on public.t"
            f" for each row execute function {schema}.{function}({given})".encode()
        )
    for change in CHANGES:
        db.execute(change.encode())

    def described(schema: str) -> list[tuple[object, ...]]:
        found = rows(
            db,
            "select ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
            f" from {schema}.event_1 order by ev_id",
        )
        return [tuple(_plain(item) for item in row) for row in found]

    assert described("pgque") == described("pgq")


def _plain(text: str | None) -> object:
    """JSON by its content, other text as it is."""
    return json.loads(text) if text is not None and text.startswith("{") else text
