-- How each objective was kept over windows that end at the newest data: share that was good, and how fast
-- the error budget burns.
create table if not exists queue_history.slo (
    objective text not null,
    window_hours integer not null check (window_hours > 0),
    engine text not null,
    database text not null,
    queue text not null default '',
    consumer text not null default '',
    target double precision not null check (target > 0 and target < 1),
    attainment double precision not null check (attainment between 0 and 1),
    burn double precision not null check (burn >= 0),  -- share that was bad over the share that may be
    budget_left double precision not null,             -- 1 - burn, below 0 once the promise is broken
    primary key (objective, window_hours, engine, database, queue, consumer)
);

grant select on table queue_history.slo to pgque_monitor;
