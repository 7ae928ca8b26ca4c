"""What happens to a few queues, step by step, as the random numbers of a seed want it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import psycopg
from psycopg.rows import dict_row

from tests.support.observed import Connection, Queue, Row

STEPS = 40  # of a whole history

# The engine may refuse a step: a paused queue can't be ticked, a lost position can't be read on.
REFUSALS = (
    psycopg.errors.DataCorrupted,
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.ObjectInUse,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UndefinedObject,
)

CONSUMERS = "abcdef"


class History:
    """Each step has random numbers of its own: one that is left out doesn't change what the others are."""

    def __init__(self, db: Connection, dsn: str, seed: int) -> None:
        self.db = db
        self.dsn = dsn
        self.seed = seed
        self.log: list[str] = []
        self._queues: list[Queue] = []
        self._held: list[Connection] = []  # each in a transaction with events not committed
        self._random = Random(f"{seed}")
        for name in self._random.choice(("q", "q", "qr", "qr", "qrs")):
            self._create(name)

    def take(self, number: int) -> None:
        """Take one of the seed's steps."""
        self._random = Random(f"{self.seed}/{number}")
        # Queues rarely recover from an accident.
        steps = _STEPS | _ACCIDENTS if number > STEPS / 2 else _STEPS
        step = self._random.choices(list(steps), list(steps.values()))[0]
        queue = self._random.choice(self._queues)
        try:
            happened = step(self, queue)
        except REFUSALS as error:
            happened = f"{step.__name__} refused: {error.diag.message_primary}"
        self.log.append(f"{number}. {queue.name}: {happened}")

    def end(self) -> None:
        """Leave nothing behind."""
        for connection in self._held:
            connection.close()
        self.db.execute("select pgque.drop_queue(queue_name, true) from pgque.queue")
        self.db.execute("delete from pgque.consumer")
        self.db.execute("delete from pgque.health_threshold where queue_name <> '*'")

    # ---- producers ----

    def send(self, queue: Queue) -> str:
        count = self._random.randint(1, 5)
        for _ in range(count):
            self.db.execute("select pgque.send(%s, '{}')", (queue.name,))
        return f"send {count}"

    def send_batch(self, queue: Queue) -> str:
        count = self._random.choice((1, 10, 130))
        queue.send(count)
        return f"send a batch of {count}"

    def send_and_tick(self, queue: Queue) -> str:
        count = self._random.choice((1, 4, 15))
        queue.send(count)
        return f"send {count}, tick {queue.tick()}"

    def send_and_roll_back(self, queue: Queue) -> str:
        count = self._random.choice((1, 20, 500))
        with self.db.transaction(force_rollback=True):
            queue.send(count)
        return f"send {count} and roll back"

    def hold(self, queue: Queue) -> str:
        if len(self._held) == 2:
            return self.let_go(queue)
        connection = psycopg.connect(self.dsn, row_factory=dict_row)
        self._held.append(connection)
        Queue(connection, queue.name).send(3)
        return "send 3 and keep the transaction open"

    def let_go(self, queue: Queue) -> str:
        if not self._held:
            return self.hold(queue)
        with self._held.pop(self._random.randrange(len(self._held))) as connection:
            if self._random.random() < 0.7:
                connection.commit()
                return "an open transaction is committed"
            connection.rollback()
            return "an open transaction is rolled back"

    def commit_late(self, queue: Queue) -> str:
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            Queue(connection, queue.name).send(3)
            meanwhile = f"{self.send_and_tick(queue)}, {self.consume(queue)}"
        ticks = [self.tick_when_idle(queue) for _ in range(self._random.choice((0, 2)))]
        return ", ".join(["send 3", meanwhile, "commit the 3", *ticks])

    # ---- ticker and maintenance ----

    def tick(self, queue: Queue) -> str:
        return f"tick {queue.tick()}"

    def tick_all(self, _queue: Queue) -> str:
        return f"tick all: {self._value('select pgque.ticker()')}"

    def tick_when_idle(self, queue: Queue) -> str:
        seconds = self._seconds(queue, "queue_ticker_idle_period") * self._random.choice((1, 1, 70)) + 1
        queue.wait(seconds)
        return f"tick after {seconds} idle seconds: {queue.tick()}"

    def tick_and_roll_back(self, queue: Queue) -> str:
        with self.db.transaction(force_rollback=True):
            return f"tick {queue.tick()} and roll back"

    def force_next_tick(self, queue: Queue) -> str:
        self._value("select pgque.force_next_tick(%s)", queue.name)
        return "force the next tick"

    def tick_from_outside(self, queue: Queue) -> str:
        self._set(queue, "external_ticker", "true")
        values = {
            "queue": queue.name,
            "gap": self._random.randint(1, 3),
            "shift": self._random.choice((-40, 4000)),
            "more": self._random.choice((0, 0, 7)),
        }
        self.db.execute(
            "select pgque.ticker(%(queue)s, t.tick_id + %(gap)s,"
            " clock_timestamp() + make_interval(secs => %(shift)s),"
            " greatest(t.tick_event_seq, pg_sequence_last_value(q.queue_event_seq::regclass)) + %(more)s)"
            " from pgque.queue q join pgque.tick t on t.tick_queue = q.queue_id"
            " where q.queue_name = %(queue)s order by t.tick_id desc limit 1",
            values,
        )
        kept = self._set(queue, "external_ticker", self._random.choice(("true", "false")))
        return f"tick from outside by a clock {values['shift']} s off, {values['more']} events ahead, {kept}"

    def retry_due(self, _queue: Queue) -> str:
        return f"maint_retry_events: {self._value('select pgque.maint_retry_events()')}"

    def rotate_step1(self, queue: Queue) -> str:
        if self._random.random() < 0.7:
            queue.wait(self._seconds(queue, "queue_rotation_period"))
        return f"rotation step 1: {self._value('select pgque.maint_rotate_tables_step1(%s)', queue.name)}"

    def rotate_step2(self, _queue: Queue) -> str:
        return f"rotation step 2: {self._value('select pgque.maint_rotate_tables_step2()')}"

    def rotate(self, queue: Queue) -> str:
        return f"{self.rotate_step1(queue)}, {self.rotate_step2(queue)}"

    # ---- consumers ----

    def register(self, queue: Queue) -> str:
        name = self._random.choice(CONSUMERS)
        queue.subscribe(name)
        return f"register {name}"

    def register_at(self, queue: Queue) -> str:
        name = self._random.choice(CONSUMERS)
        ticks = self._rows(queue, "select tick_id from pgque.tick where tick_queue = {queue} order by 1")
        if not ticks:
            return self.register(queue)
        tick_id = self._random.choice(ticks)["tick_id"]
        self._value("select pgque.register_consumer_at(%s, %s, %s)", queue.name, name, tick_id)
        return f"register {name} at tick {tick_id}"

    def unregister(self, queue: Queue) -> str:
        name = self._random.choice(CONSUMERS)
        return f"unregister {name}: {self._value('select pgque.unsubscribe(%s, %s)', queue.name, name)}"

    def receive(self, queue: Queue) -> str:
        consumer = self._consumer(queue)
        return f"{consumer} receives {len(queue.receive(consumer))}"

    def ack(self, queue: Queue) -> str:
        acked = self._rows(
            queue,
            "select pgque.ack(sub_batch) from pgque.subscription"
            " where sub_queue = {queue} and sub_role = 'normal' and sub_batch is not null",
        )
        return f"ack {len(acked)} batches"

    def consume(self, queue: Queue) -> str:
        consumer = self._consumer(queue)
        return f"{consumer} consumes {queue.consume(consumer)}"

    def consume_all(self, queue: Queue) -> str:
        names = [row["co_name"] for row in self._subscriptions(queue, "normal")]
        return f"everyone consumes: {[queue.consume(name) for name in names]}"

    def nack(self, queue: Queue) -> str:
        consumer = self._consumer(queue)
        count = self._random.choice((1, 3, 200))
        after = self._random.choice(("0", "30 seconds", "1 hour"))
        sent = "" if queue.receive(consumer) else f"{self.send_and_tick(queue)}, "
        failed = self.db.execute(
            "select pgque.nack(m.batch_id, m, %s::interval, 'boom') from pgque.receive(%s, %s, %s) m",
            (after, queue.name, consumer, count),
        ).fetchall()
        return f"{sent}{consumer} fails {len(failed)}, again in {after}"

    def replay(self, queue: Queue) -> str:
        return f"replay dead letters: {self._value('select pgque.dlq_replay_all(%s)', queue.name)}"

    def purge(self, queue: Queue) -> str:
        age = self._random.choice(("0", "1 minute"))
        return f"purge older than {age}: {self._value('select pgque.dlq_purge(%s, %s)', queue.name, age)}"

    # ---- a cooperative group, as the engine lays it: the main row is its cursor ----

    def group(self, queue: Queue) -> str:
        names = [row["co_name"] for row in self._subscriptions(queue, "normal")]
        if len(names) < 3 or self._subscriptions(queue, "coop_main"):
            return self.register(queue)
        main, *members = self._random.sample(names, self._random.choice((2, 3)))
        self._update(queue, main, "sub_role = 'coop_main', sub_batch = null, sub_next_tick = null")
        for member in members:
            self._update(
                queue, member,
                "sub_role = 'coop_member', sub_last_tick = null, sub_batch = null, sub_next_tick = null,"
                " sub_parent = (select m.sub_id from pgque.subscription m"
                " where m.sub_role = 'coop_main' and m.sub_queue = s.sub_queue)",
            )
        return f"{members} become members of {main}"

    def member_takes(self, queue: Queue) -> str:
        idle = [row for row in self._subscriptions(queue, "coop_member") if row["sub_batch"] is None]
        ahead = self._rows(
            queue,
            "select t.tick_id from pgque.tick t join pgque.subscription m on m.sub_queue = t.tick_queue"
            " where t.tick_queue = {queue} and m.sub_role = 'coop_main' and t.tick_id > m.sub_last_tick"
            " order by t.tick_id limit 2",
        )
        if not idle or not ahead:
            return self.group(queue)
        member, until = self._random.choice(idle)["co_name"], self._random.choice(ahead)["tick_id"]
        (main,) = self._subscriptions(queue, "coop_main")
        self._update(
            queue, member,
            f"sub_last_tick = {main['sub_last_tick']}, sub_next_tick = {until},"
            " sub_batch = nextval('pgque.batch_id_seq'), sub_active = now()",
        )
        self._update(queue, main["co_name"], f"sub_last_tick = {until}, sub_active = now()")
        return f"member {member} takes up to tick {until}"

    def member_finishes(self, queue: Queue) -> str:
        busy = [row for row in self._subscriptions(queue, "coop_member") if row["sub_batch"] is not None]
        if not busy:
            return self.member_takes(queue)
        member = self._random.choice(busy)["co_name"]
        self._update(
            queue, member, "sub_last_tick = null, sub_next_tick = null, sub_batch = null, sub_active = now()"
        )
        return f"member {member} finishes"

    def disband(self, queue: Queue) -> str:
        gone = self._rows(
            queue,
            "delete from pgque.subscription where sub_queue = {queue} and sub_role = 'coop_member'"
            " returning sub_id",
        )
        for row in self._subscriptions(queue, "coop_main"):
            self._update(queue, row["co_name"], "sub_role = 'normal'")
        return f"the group loses its {len(gone)} members"

    # ---- time, operators and accidents ----

    def wait_a_little(self, queue: Queue) -> str:
        seconds = round(self._random.uniform(0.1, 15), 3)
        queue.wait(seconds)
        return f"wait {seconds}"

    def wait(self, queue: Queue) -> str:
        # Mostly to just beyond a threshold or the beginning of a period.
        longest = self._random.choice((20, 60, 120, 330, 700, 910, 3700, 7300, 10_950, 14_700, 50_000))
        seconds = round(longest * self._random.uniform(0.98, 1), 3)
        queue.wait(seconds)
        return f"wait {seconds}" + (f", tick {queue.tick()}" if self._random.random() < 0.5 else "")

    def pause(self, queue: Queue) -> str:
        return self._set(queue, "ticker_paused", self._random.choice(("true", "false", "false")))

    def configure(self, queue: Queue) -> str:
        name, values = self._random.choice((
            ("ticker_max_count", ("1", "100")),
            ("ticker_max_lag", ("1 second", "30 seconds", "10 minutes")),
            ("ticker_idle_period", ("5 seconds", "1 minute", "1 hour")),
            ("rotation_period", ("1 second", "30 seconds", "2 hours", "1 day")),
            ("max_retries", ("0", "1", "5")),
            ("external_ticker", ("false",)),
        ))
        return self._set(queue, name, self._random.choice(values))

    def set_threshold(self, queue: Queue) -> str:
        name, values = self._random.choice((
            ("tick_grace", ("0", "10 minutes")),
            ("unticked_grace", ("0", "10 minutes")),
            ("lag_warning", ("1 second", "1 minute")),
            ("lag_critical", ("2 minutes", "3 hours")),
            ("stuck_after", ("1 minute", "1 day")),
            ("rotation_grace", ("0", "1 day")),
            ("retry_grace", ("0", "1 hour")),
            ("dead_letters_warning", ("0", "999", "1100")),
            ("dead_letters_hour_warning", ("1", "5")),
            ("dead_letters_hour_critical", ("10", "1500")),
        ))
        value = self._random.choice((*values, None))
        own = "insert into pgque.health_threshold (queue_name) values (%s) on conflict do nothing"
        self.db.execute(own, (queue.name,))
        change = f"update pgque.health_threshold set {name} = %s where queue_name = %s"
        self.db.execute(change.encode(), (value, queue.name))
        return f"threshold {name} is {value}"

    def new_queue(self, _queue: Queue) -> str:
        if len(self._queues) < 4:
            self._create(f"n{len(self._queues)}")
        return f"there are {len(self._queues)} queues"

    def lose_a_tick(self, queue: Queue) -> str:
        used = self._rows(
            queue,
            "select t.tick_id from pgque.tick t join pgque.subscription s on s.sub_queue = t.tick_queue"
            " and t.tick_id in (s.sub_last_tick, s.sub_next_tick) where t.tick_queue = {queue} order by 1",
        )
        if not used:
            return self.register(queue)
        if self._random.random() < 0.1:
            self._rows(queue, "delete from pgque.tick where tick_queue = {queue} returning 1")
            return "all ticks are lost"
        lost = self._random.choice(used)["tick_id"]
        self._rows(
            queue, f"delete from pgque.tick where tick_queue = {{queue}} and tick_id = {lost} returning 1"
        )
        return f"tick {lost} is lost"

    def restore_a_dump(self, queue: Queue) -> str:
        self._rows(
            queue,
            "update pgque.tick set tick_snapshot = '99999999:99999999:',"
            " tick_event_seq = greatest(tick_event_seq,"
            " (select pg_sequence_last_value(queue_event_seq::regclass)"
            " from pgque.queue where queue_id = {queue}))"
            " where (tick_queue, tick_id) ="
            " (select tick_queue, max(tick_id) from pgque.tick where tick_queue = {queue} group by 1)"
            " returning tick_id",
        )
        return "the last tick comes from another server"

    def set_sequence_back(self, queue: Queue) -> str:
        """As on a standby that was promoted without its sequences.

        It is the ticks that are lifted, so that the sequence never reaches the number of an older one
        again: then nothing but the event tables could tell that events came between.
        """
        before = self.consume_all(queue) if self._random.random() < 0.5 else "nobody consumes"
        self._rows(
            queue,
            "update pgque.tick set tick_event_seq = tick_event_seq + 1000000 where tick_queue = {queue}"
            " returning tick_id",
        )
        after = f"{self.send(queue)}, {self.tick_when_idle(queue)}, {self.receive(queue)}"
        return f"{before}, the event sequence is set back, {after}"

    def fail_in_masses(self, queue: Queue) -> str:
        """Laid by hand: the engine would take seconds to fail so many."""
        consumer = self._consumer(queue)
        count = self._random.choice((43, 43, 1000, 1001, 4002))  # a quarter of them in the last hour
        self._rows(
            queue,
            "insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, dl_time, ev_id, ev_time)"
            f" select s.sub_queue, s.sub_consumer, now() - n * interval '4 hours' / {count}, -n, now()"
            f" from pgque.subscription s, generate_series(1, {count}) n"
            " where s.sub_queue = {queue} and s.sub_consumer ="
            f" (select co_id from pgque.consumer where co_name = '{consumer}')"
            " on conflict do nothing returning dl_id",
        )
        return f"{count} events of {consumer} died in four hours"

    # ---- helpers ----

    def _create(self, name: str) -> None:
        queue = Queue(self.db, name)
        self.db.execute("select pgque.create_queue(%s)", (name,))
        self._queues.append(queue)
        self._set(queue, "ticker_max_count", "1")
        period = self._random.choice(("1 second", "10 minutes", "2 hours", "1 day"))
        self._set(queue, "rotation_period", period)
        self._set(queue, "max_retries", self._random.choice(("0", "2", "5")))
        for consumer in self._random.choice(("", "a", "ab", "ab", "abcd", "abcd")):
            queue.subscribe(consumer)
        if self._random.random() < 0.5:
            self.group(queue)

    def _set(self, queue: Queue, name: str, value: str) -> str:
        self._value("select pgque.set_queue_config(%s, %s, %s)", queue.name, name, value)
        return f"set {name} to {value}"

    def _seconds(self, queue: Queue, column: str) -> int:
        seconds = self._value(
            f"select extract(epoch from {column})::int8 from pgque.queue where queue_name = %s", queue.name
        )
        assert isinstance(seconds, int)
        return seconds

    def _value(self, query: str, *values: object) -> object:
        row = self.db.execute(query.encode(), values).fetchone()
        return row and next(iter(row.values()))

    def _rows(self, queue: Queue, query: str) -> list[Row]:
        queue_id = self._value("select queue_id from pgque.queue where queue_name = %s", queue.name)
        return self.db.execute(query.format(queue=queue_id).encode()).fetchall()

    def _subscriptions(self, queue: Queue, role: str) -> list[Row]:
        return self._rows(
            queue,
            "select s.*, c.co_name from pgque.subscription s"
            " join pgque.consumer c on c.co_id = s.sub_consumer"
            f" where s.sub_queue = {{queue}} and s.sub_role = '{role}' order by c.co_name",
        )

    def _consumer(self, queue: Queue) -> str:
        """One with a position of its own; `a` is registered where there is none."""
        names = [row["co_name"] for row in self._subscriptions(queue, "normal")]
        if not names:
            queue.subscribe("a")
        return self._random.choice(names) if names else "a"

    def _update(self, queue: Queue, consumer: str, change: str) -> None:
        self._rows(
            queue,
            f"update pgque.subscription s set {change} from pgque.consumer c"
            f" where s.sub_queue = {{queue}} and c.co_id = s.sub_consumer and c.co_name = '{consumer}'"
            " returning s.sub_id",
        )


Step = Callable[[History, Queue], str]

# How often each step is taken, relative to the others.
_STEPS: dict[Step, int] = {
    History.send: 6,
    History.send_batch: 5,
    History.send_and_tick: 16,
    History.send_and_roll_back: 3,
    History.hold: 4,
    History.let_go: 4,
    History.commit_late: 4,
    History.tick: 8,
    History.tick_all: 3,
    History.tick_when_idle: 5,
    History.tick_and_roll_back: 2,
    History.force_next_tick: 2,
    History.tick_from_outside: 6,
    History.retry_due: 5,
    History.rotate_step1: 3,
    History.rotate_step2: 3,
    History.rotate: 6,
    History.register: 3,
    History.register_at: 3,
    History.unregister: 1,
    History.receive: 6,
    History.ack: 5,
    History.consume: 7,
    History.consume_all: 5,
    History.nack: 10,
    History.replay: 2,
    History.purge: 1,
    History.member_takes: 10,
    History.member_finishes: 5,
    History.disband: 1,
    History.wait_a_little: 8,
    History.wait: 7,
    History.pause: 2,
    History.configure: 4,
    History.set_threshold: 4,
    History.new_queue: 1,
}
_ACCIDENTS: dict[Step, int] = {
    History.lose_a_tick: 10,
    History.restore_a_dump: 2,
    History.set_sequence_back: 8,
    History.fail_in_masses: 3,
}
