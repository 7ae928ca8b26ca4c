-- How long events wait for the consumer, estimated from the gap between a tick and its consumption
-- (specification 5.1). Two samples can be had from the tables: events that still wait (now minus their
-- tick) and the batch consumed last (the consumer's last activity minus its tick). The pack's
-- instrumentation knows all batches finished since its installation. Each event of a tick weighs the
-- same. One row; null when the period holds no sample.
create or replace function {pack}.latency_percentiles(queue_name text, consumer_name text, period interval)
returns table (p50 interval, p95 interval, p99 interval)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    wanted_queue int4 := {pack}.require_queue(queue_name);
    consumer record;
    finished record;
begin
    select * into consumer from {pack}.require_consumer(wanted_queue, consumer_name);
    if period is null or period <= interval '0' then
        raise exception 'period must be positive, not %', coalesce(period::text, 'null');
    end if;

    select null::interval[] as latency, null::numeric[] as events into finished;
    if to_regprocedure('{pack}.wait_history(int4, text, timestamptz)') is not null then
        execute 'select array_agg(h.latency) as latency, array_agg(h.events) as events'
            ' from {pack}.wait_history($1, $2, $3) h'
        into finished
        using wanted_queue, consumer_name, now() - period;
    end if;

    return query
    with tick as (
        select t.tick_id, t.tick_time,
            t.tick_event_seq - lag(t.tick_event_seq) over (order by t.tick_id) as events
        from {tick} t
        where t.tick_queue = wanted_queue
            and t.tick_id >= coalesce(
                (select max(b.tick_id) from {tick} b
                 where b.tick_queue = wanted_queue and b.tick_id < consumer.last_tick),
                consumer.last_tick)
    ),
    sample as (
        select
            greatest(
                case when t.tick_id = consumer.last_tick then consumer.last_active else now() end - t.tick_time,
                interval '0') as latency,
            t.events
        from tick t
        where t.events > 0
            and t.tick_time > now() - period
            and (t.tick_id > consumer.last_tick or finished.latency is null)
        union all
        select f.latency, f.events
        from unnest(finished.latency, finished.events) f(latency, events)
    ),
    ranked as (
        select s.latency, sum(s.events) over (order by s.latency) as up_to, sum(s.events) over () as total
        from sample s
    )
    select
        min(r.latency) filter (where r.up_to >= r.total * 0.50),
        min(r.latency) filter (where r.up_to >= r.total * 0.95),
        min(r.latency) filter (where r.up_to >= r.total * 0.99)
    from ranked r;
end
$$;

revoke all on function {pack}.latency_percentiles(text, text, interval) from public;
grant execute on function {pack}.latency_percentiles(text, text, interval) to pgque_monitor;
