-- When a consumer's lag will pass its queue's rotation period, if it goes on as in its newest hours: seconds
-- after the publication's as_of, and the ends of a 95 % interval. NULL: not at that pace.
create table if not exists queue_history.forecast (
    engine text not null,
    database text not null,
    queue text not null,
    consumer text not null,
    as_of timestamptz not null,
    seconds_left double precision check (seconds_left >= 0),
    seconds_left_low double precision check (seconds_left_low >= 0),
    seconds_left_high double precision check (seconds_left_high >= 0),
    primary key (engine, database, queue, consumer)
);

grant select on table queue_history.forecast to pgque_monitor;
