-- Optional instrumentation of PgQue. The engine's tables keep no history of what its consumers did;
-- with these triggers on them an operator learns, exactly and per consumer:
--
--   how often events were sent to retry, redelivered, given up on, replayed and purged;
--   how long batches were worked on, and how large they were;
--   the same for the past: error_rate() and latency_percentiles() over any period kept.
--
-- What it costs, and how to schedule instrumentation_rollup(): docs/instrumentation.md.
do $$
begin
    if to_regprocedure('pgque.otel_metrics()') is null
        or to_regprocedure('pgque.observability_info()') is null
        or not exists (select from pg_catalog.pg_roles where rolname = 'pgque_monitor')
    then
        raise exception 'the observability pack of PgQue is not installed in database "%"', current_database()
            using hint = 'Install it first: pgque-exporter sql install, or \i sql/observability/pgque/install.sql';
    end if;
end
$$;
