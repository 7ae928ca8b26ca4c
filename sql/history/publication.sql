-- When each table was published last, what it rests on, and until when it may be shown: a forecast of
-- yesterday is none.
create table if not exists queue_history.publication (
    table_name text primary key check (table_name in ('baseline', 'slo', 'forecast')),
    published_at timestamptz not null default now(),
    as_of timestamptz not null,        -- newest metric that is in it
    valid_until timestamptz not null,
    time_zone text not null default 'UTC'  -- that of the hours of a week
);

grant select on table queue_history.publication to pgque_monitor;
