-- What is normal for a metric of a queue or consumer in each hour of the week: median and band. An empty
-- queue or consumer means that the metric is of something larger.
create table if not exists queue_history.baseline (
    engine text not null,
    database text not null,
    queue text not null default '',
    consumer text not null default '',
    metric text not null,               -- OpenTelemetry name; of a counter, its rate per second
    hour_of_week smallint not null check (hour_of_week between 0 and 167),  -- 0 is Monday from 0:00 to 1:00
    median double precision not null,
    low double precision not null,
    high double precision not null,
    hours bigint not null check (hours > 0),  -- hours with data that it rests on
    primary key (engine, database, queue, consumer, metric, hour_of_week)
);

-- A poll reads one hour of the 168.
create index if not exists baseline_hour_of_week_idx on queue_history.baseline (hour_of_week);

grant select on table queue_history.baseline to pgque_monitor;
