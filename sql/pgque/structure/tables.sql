-- Everything the engine knows, apart from the event tables that create_queue() makes per queue.
--
-- How the pieces fit: writers append to a queue's current event table and never touch a shared row.
-- A tick is a remembered snapshot. A batch is what became visible between two ticks, so a consumer's
-- whole state is the tick it has reached. Old event tables are emptied by TRUNCATE once the slowest
-- consumer is past them; events are never updated or deleted one by one.

create table if not exists pgque.queue (
    queue_id                 serial      not null,
    queue_name               text        not null,
    queue_ntables            int4        not null default 3,
    queue_cur_table          int4        not null default 0,
    queue_rotation_period    interval    not null default '2 hours',
    queue_switch_step1       xid8        not null default pg_catalog.pg_current_xact_id(),
    queue_switch_step2       xid8                 default pg_catalog.pg_current_xact_id(),
    queue_switch_time        timestamptz not null default pg_catalog.now(),
    queue_external_ticker    bool        not null default false,
    queue_disable_insert     bool        not null default false,
    queue_ticker_paused      bool        not null default false,
    queue_ticker_max_count   int4        not null default 500,
    queue_ticker_max_lag     interval    not null default '3 seconds',
    queue_ticker_idle_period interval    not null default '1 minute',
    queue_data_pfx           text        not null,
    queue_event_seq          text        not null,
    queue_tick_seq           text        not null,
    queue_extra_maint        text[],
    queue_max_retries        int4,

    constraint queue_pkey primary key (queue_id),
    constraint queue_name_uq unique (queue_name),
    -- Kept for tools that know the column; a hook would run as the owner, so none is allowed.
    constraint queue_extra_maint_check check (queue_extra_maint is null)
);

create table if not exists pgque.tick (
    tick_queue     int4        not null,
    tick_id        bigint      not null,
    tick_time      timestamptz not null default pg_catalog.now(),
    tick_snapshot  pg_snapshot not null default pg_catalog.pg_current_snapshot(),
    tick_event_seq bigint      not null,

    constraint tick_pkey primary key (tick_queue, tick_id),
    constraint tick_queue_fkey foreign key (tick_queue) references pgque.queue (queue_id)
);

create table if not exists pgque.consumer (
    co_id   serial not null,
    co_name text   not null,

    constraint consumer_pkey primary key (co_id),
    constraint consumer_name_uq unique (co_name)
);

create sequence if not exists pgque.batch_id_seq;

create table if not exists pgque.subscription (
    sub_id        serial      not null,
    sub_queue     int4        not null,
    sub_consumer  int4        not null,
    sub_last_tick bigint,
    sub_active    timestamptz not null default pg_catalog.now(),
    sub_batch     bigint,
    sub_next_tick bigint,
    sub_role      text        not null default 'normal',
    sub_parent    int4,

    constraint subscription_pkey primary key (sub_queue, sub_consumer),
    constraint subscription_id_uq unique (sub_id),
    constraint subscription_batch_uq unique (sub_batch),
    constraint subscription_queue_fkey foreign key (sub_queue) references pgque.queue (queue_id),
    constraint subscription_consumer_fkey foreign key (sub_consumer) references pgque.consumer (co_id),
    constraint subscription_role_check check (sub_role in ('normal', 'coop_main', 'coop_member'))
);

-- Never holds a row itself: every queue's event tables descend from it.
create table if not exists pgque.event_template (
    ev_id     bigint      not null,
    ev_time   timestamptz not null default pg_catalog.now(),
    ev_txid   xid8        not null default pg_catalog.pg_current_xact_id(),
    ev_owner  int4,
    ev_retry  int4,
    ev_type   text,
    ev_data   text,
    ev_extra1 text,
    ev_extra2 text,
    ev_extra3 text,
    ev_extra4 text
);

create table if not exists pgque.retry_queue (
    ev_retry_after timestamptz not null,
    ev_queue       int4        not null,
    like pgque.event_template including defaults,

    constraint retry_queue_pkey primary key (ev_owner, ev_id),
    constraint retry_queue_queue_fkey foreign key (ev_queue) references pgque.queue (queue_id)
);

create table if not exists pgque.dead_letter (
    dl_id          bigserial   not null,
    dl_queue_id    int4        not null,
    dl_consumer_id int4        not null,
    dl_time        timestamptz not null default pg_catalog.now(),
    dl_reason      text,
    ev_id          bigint      not null,
    ev_time        timestamptz not null,
    ev_txid        xid8,
    ev_retry       int4,
    ev_type        text,
    ev_data        text,
    ev_extra1      text,
    ev_extra2      text,
    ev_extra3      text,
    ev_extra4      text,

    constraint dead_letter_pkey primary key (dl_id),
    constraint dead_letter_queue_fkey foreign key (dl_queue_id)
        references pgque.queue (queue_id) on delete cascade,
    constraint dead_letter_consumer_fkey foreign key (dl_consumer_id)
        references pgque.consumer (co_id) on delete cascade
);

create table if not exists pgque.config (
    singleton     bool        not null default true,
    ticker_job_id bigint,
    maint_job_id  bigint,
    installed_at  timestamptz not null default pg_catalog.clock_timestamp(),

    constraint config_pkey primary key (singleton),
    constraint config_singleton_check check (singleton)
);
insert into pgque.config (singleton) values (true) on conflict do nothing;

-- Messages that aren't due yet. Not one of the event tables: those are emptied whole.
create table if not exists pgque.delayed_events (
    de_id         bigserial   not null,
    de_queue_name text        not null,
    de_deliver_at timestamptz not null,
    de_type       text,
    de_data       text,
    de_extra1     text,
    de_extra2     text,
    de_extra3     text,
    de_extra4     text,

    constraint delayed_events_pkey primary key (de_id)
);

-- Indexes, and what an install of an earlier version doesn't have. Only what is missing is asked for:
-- with "if not exists" PostgreSQL takes its lock before it looks, and would wait for whoever is at work,
-- hold up everybody else, and meet some of them in a deadlock.
do $$
declare
    v_statement text;
begin
    for v_statement in
        select pg_catalog.format('create %s on pgque.%s', i.kind || ' ' || i.name, i.of_columns)
        from (values
            ('index', 'retry_queue_after_idx', 'retry_queue (ev_retry_after)'),
            ('index', 'retry_queue_queue_idx', 'retry_queue (ev_queue)'),
            ('index', 'dl_queue_time_idx', 'dead_letter (dl_queue_id, dl_time)'),
            ('unique index', 'dl_queue_consumer_event_uq', 'dead_letter (dl_queue_id, dl_consumer_id, ev_id)'),
            ('index', 'de_deliver_idx', 'delayed_events (de_deliver_at)'),
            ('index', 'de_queue_idx', 'delayed_events (de_queue_name)')
        ) as i (kind, name, of_columns)
        where pg_catalog.to_regclass('pgque.' || i.name) is null
        union all
        -- They are drawn from, and set, with the owner's rights: whoever may write into the table must not
        -- name a sequence of somebody else.
        select 'alter table pgque.queue add constraint queue_sequences_check check ('
            'queue_event_seq = ''pgque.event_'' || queue_id || ''_id_seq'''
            ' and queue_tick_seq = ''pgque.event_'' || queue_id || ''_tick_seq'')'
        where not exists (
            select
            from pg_catalog.pg_constraint as k
            where k.conrelid = pg_catalog.to_regclass('pgque.queue') and k.conname = 'queue_sequences_check'
        )
        union all
        select pg_catalog.format('alter table pgque.%s add column %s %s', c.of_table, c.name, c.kind)
        from (values
            ('config', 'retry_job_id', 'bigint'),
            ('config', 'step2_job_id', 'bigint'),
            ('config', 'tick_period_ms', 'int4 not null default 100'),
            ('queue', 'queue_event_ttl', 'interval')
        ) as c (of_table, name, kind)
        where not exists (
            select
            from pg_catalog.pg_attribute as a
            where a.attrelid = pg_catalog.to_regclass('pgque.' || c.of_table) and a.attname = c.name
        )
    loop
        execute v_statement;
    end loop;
end;
$$;

-- Tables of queues created before a re-install are left as they are: create_queue() granted those.
revoke all on
    pgque.queue, pgque.tick, pgque.consumer, pgque.subscription, pgque.event_template,
    pgque.retry_queue, pgque.dead_letter, pgque.delayed_events, pgque.config
    from public;
revoke all on
    pgque.queue_queue_id_seq, pgque.consumer_co_id_seq, pgque.subscription_sub_id_seq,
    pgque.batch_id_seq, pgque.dead_letter_dl_id_seq, pgque.delayed_events_de_id_seq
    from public;

grant select on
    pgque.queue, pgque.tick, pgque.consumer, pgque.subscription, pgque.event_template,
    pgque.retry_queue, pgque.dead_letter, pgque.delayed_events, pgque.config
    to pgque_reader;
grant select, insert, update, delete, truncate on
    pgque.queue, pgque.tick, pgque.consumer, pgque.subscription, pgque.event_template,
    pgque.retry_queue, pgque.dead_letter, pgque.delayed_events, pgque.config
    to pgque_admin;
grant all on
    pgque.queue_queue_id_seq, pgque.consumer_co_id_seq, pgque.subscription_sub_id_seq,
    pgque.batch_id_seq, pgque.dead_letter_dl_id_seq, pgque.delayed_events_de_id_seq
    to pgque_admin;
