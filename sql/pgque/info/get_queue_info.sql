-- A queue at a glance: its settings, how old its last tick is, and how much came since. The rate is
-- that over the last twenty ticks until now, so it falls when the ticker stands still. Rates and
-- counts come from the event sequence and therefore include retries and rolled-back events.

create or replace function pgque.get_queue_info(
    queue text,
    out queue_name text, out queue_ntables integer, out queue_cur_table integer,
    out queue_rotation_period interval, out queue_switch_time timestamptz,
    out queue_external_ticker boolean, out queue_ticker_paused boolean,
    out queue_ticker_max_count integer, out queue_ticker_max_lag interval,
    out queue_ticker_idle_period interval,
    out ticker_lag interval, out ev_per_sec float8, out ev_new bigint, out last_tick_id bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select
        q.queue_name, q.queue_ntables, q.queue_cur_table, q.queue_rotation_period,
        q.queue_switch_time, q.queue_external_ticker, q.queue_ticker_paused,
        q.queue_ticker_max_count, q.queue_ticker_max_lag, q.queue_ticker_idle_period,
        clock_timestamp() - ticks.last_time,
        greatest(sent.event_seq - ticks.first_seq, 0)
            / nullif(extract(epoch from clock_timestamp() - ticks.first_time), 0)::float8,
        case when ticks.last_id is not null then greatest(sent.event_seq - ticks.last_seq, 0) end,
        ticks.last_id
    from pgque.queue as q
    cross join lateral (
        select coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0) as event_seq
    ) as sent
    cross join lateral (
        select
            min(recent.tick_time) as first_time, min(recent.tick_event_seq) as first_seq,
            max(recent.tick_time) as last_time, max(recent.tick_event_seq) as last_seq,
            max(recent.tick_id) as last_id
        from (
            select t.tick_id, t.tick_time, t.tick_event_seq
            from pgque.tick as t
            where t.tick_queue = q.queue_id
            order by t.tick_id desc
            limit 20
        ) as recent
    ) as ticks
    where get_queue_info.queue is null or q.queue_name = get_queue_info.queue
    order by q.queue_name;
end;
$$;

create or replace function pgque.get_queue_info(
    out queue_name text, out queue_ntables integer, out queue_cur_table integer,
    out queue_rotation_period interval, out queue_switch_time timestamptz,
    out queue_external_ticker boolean, out queue_ticker_paused boolean,
    out queue_ticker_max_count integer, out queue_ticker_max_lag interval,
    out queue_ticker_idle_period interval,
    out ticker_lag interval, out ev_per_sec float8, out ev_new bigint, out last_tick_id bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query select i.* from pgque.get_queue_info(null) as i;
end;
$$;

revoke all on function pgque.get_queue_info(text) from public;
revoke all on function pgque.get_queue_info() from public;
grant execute on function pgque.get_queue_info(text) to pgque_reader;
grant execute on function pgque.get_queue_info() to pgque_reader;
