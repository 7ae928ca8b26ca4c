-- Triggers only append to the log: one small row per finished batch, failure or replay, never a
-- payload, and no index to maintain. The roll-up moves it into totals and history. What is true at any
-- moment is the sum of both.
--
-- vacuum_truncate is off because truncating takes an exclusive lock, and triggers don't wait for locks
-- (see instrumentation_ready); the file stays as large as the log was at its longest.
create table if not exists pgque.instrumentation_log (
    at         timestamptz not null,
    events     bigint,                -- null when a batch's could not be counted
    processing bigint,                -- of a batch: microseconds since it was taken
    wait       bigint,                -- of a batch: microseconds since its last event became visible
    queue_id   int4        not null,
    sub_id     int4        not null,  -- 0: concerns the queue and no consumer
    what       text        not null   -- batch, nacked, redelivered, dead_lettered, replayed, purged
)
with (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Counts since the installation. No foreign keys: checking them would make consumers and the roll-up
-- wait for each other. Rows of a consumer or queue that is gone are not shown, and swept by the roll-up.
create table if not exists pgque.instrumentation_total (
    queue_id      int4    not null,
    sub_id        int4    not null,
    what          text    not null,
    processing_le bigint  not null,   -- buckets of a batch in the two histograms, by their upper bounds;
    size_le       bigint  not null,   -- 0: unknown, or no batch
    entries       bigint  not null,   -- rows of the log
    events        numeric not null,
    processing    numeric not null,

    constraint instrumentation_total_pkey primary key (queue_id, sub_id, what, processing_le, size_le)
)
with (fillfactor = 60);

-- What happened per minute, for a limited time: failures, and how long events of batches had waited.
create table if not exists pgque.instrumentation_history (
    queue_id int4        not null,
    sub_id   int4        not null,
    what     text        not null,    -- batch, nacked, dead_lettered
    minute   timestamptz not null,
    wait_le  bigint      not null,    -- of a batch: upper bound in microseconds; else 0
    events   numeric     not null,

    constraint instrumentation_history_pkey primary key (queue_id, sub_id, what, minute, wait_le)
)
with (fillfactor = 80);
create index if not exists instrumentation_history_minute_idx on pgque.instrumentation_history (minute);

-- One row; whoever has it locked is the one that rolls up.
create table if not exists pgque.instrumentation_state (
    singleton    bool        not null default true,
    history_from timestamptz not null default pg_catalog.clock_timestamp(),  -- nothing older is known
    history_kept interval    not null default '1 day',                       -- change it as you like

    constraint instrumentation_state_pkey primary key (singleton),
    constraint instrumentation_state_singleton_check check (singleton),
    constraint instrumentation_state_history_check check (history_kept >= '0')
);
insert into pgque.instrumentation_state (singleton) values (true) on conflict do nothing;

revoke all on
    pgque.instrumentation_log, pgque.instrumentation_total, pgque.instrumentation_history,
    pgque.instrumentation_state
    from public;
grant select on
    pgque.instrumentation_log, pgque.instrumentation_total, pgque.instrumentation_history,
    pgque.instrumentation_state
    to pgque_monitor;
