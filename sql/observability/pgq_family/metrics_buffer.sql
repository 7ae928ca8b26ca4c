-- What otel_metrics() said at earlier times, for where nothing may leave the database; buffer_metrics()
-- fills it (specification 5.3). A row takes up to 170 bytes, index included.
create table if not exists {pack}.metrics_buffer (
    collected_at timestamptz not null,  -- the same for all rows of a collection
    metric_name text not null,
    metric_type text not null,
    value numeric not null,
    labels jsonb not null
);

-- A BRIN index would be smaller, but rows go round in here: once space is used again, its ranges span all
-- times, and deleting the oldest rows reads the whole table.
create index if not exists metrics_buffer_collected_at_idx on {pack}.metrics_buffer (collected_at);

revoke all on {pack}.metrics_buffer from public;
grant select on {pack}.metrics_buffer to pgque_monitor, {admin};
