-- What is wrong, in words: one row per queue and check, and per consumer as `check:consumer`
-- (specification 5.1). status is ok, warning, critical or unknown; only critical should wake a person.
create or replace function pgque.queue_health()
returns table (queue_name text, check_name text, status text, detail text)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select
        h.queue_name,
        case when h.consumer_name is null then h.check_name else h.check_name || ':' || h.consumer_name end,
        h.status,
        h.detail
    from (select array_agg(q) as queues from pgque.observed_queues() q) o
    cross join lateral (
        select array_agg(c) as consumers from pgque.observed_consumers(o.queues) c
    ) oc
    cross join lateral pgque.health_checks(o.queues, oc.consumers) h
    order by h.queue_name, h.consumer_name nulls first, h.check_name
$$;

revoke all on function pgque.queue_health() from public;
grant execute on function pgque.queue_health() to pgque_monitor;
