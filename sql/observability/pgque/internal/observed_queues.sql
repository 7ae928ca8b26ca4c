-- Every queue's raw figures in one pass: a few index probes per queue, whatever the number of ticks
-- kept, of events waiting or of dead letters.
create or replace function pgque.observed_queues()
returns setof pgque.observed_queue
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
rows 1000
as $$
    with queues as materialized (
        select
            q.*,
            seq.sent,
            last_tick.tick_id as last_tick_id,
            last_tick.tick_time as last_tick_time,
            last_tick.tick_event_seq as last_tick_seq,
            last_tick.tick_snapshot as last_tick_snapshot,
            -- not greatest(): that would turn an unknown into 0
            case when seq.sent < last_tick.tick_event_seq then 0
                else seq.sent - last_tick.tick_event_seq end as sequence_ahead
        from pgque.queue q
        left join lateral (
            select coalesce(pg_sequence_last_value(s.oid), 0) as sent  -- null: nothing was ever sent
            from (select to_regclass(q.queue_event_seq) as oid) s
            where s.oid is not null and has_sequence_privilege(s.oid, 'select')
        ) seq on true
        left join lateral (
            select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot
            from pgque.tick t
            where t.tick_queue = q.queue_id
            order by t.tick_id desc
            limit 1
        ) last_tick on true
    ),
    looked_up as materialized (
        -- A running ticker covers new events within ticker_max_lag. Only when it is late is it worth
        -- asking the event table whether the sequence ran ahead of anything that can be delivered.
        select
            q.*,
            case when late.is_late then pgque.unticked_since(q.queue_id) end as unticked_since,
            late.is_late
        from queues q
        cross join lateral (
            select q.sequence_ahead > 0
                and now() - q.last_tick_time > q.queue_ticker_max_lag + interval '5 seconds' as is_late
        ) late
    )
    select
        q.queue_id,
        q.queue_name,
        q.queue_ticker_paused,
        q.queue_external_ticker,
        q.queue_ticker_max_lag,
        q.queue_ticker_idle_period,
        q.queue_cur_table,
        q.queue_switch_time,
        q.queue_switch_step2,
        q.queue_rotation_period,
        q.sent,
        case when q.is_late and q.unticked_since is null then 0 else q.sequence_ahead end,
        q.unticked_since,
        first_tick.tick_event_seq,
        q.last_tick_id,
        q.last_tick_time,
        q.last_tick_seq,
        pg_snapshot_xmin(q.last_tick_snapshot) > pg_snapshot_xmax(pg_current_snapshot()),
        -- Between the last two ticks, whatever their ids: a rolled-back tick leaves a gap. Unknown
        -- once the ticker is overdue, else a dead ticker would show its last rate for ever.
        case
            when q.last_tick_seq >= previous_tick.tick_event_seq
                and q.last_tick_time > previous_tick.tick_time
                and now() - q.last_tick_time <= q.queue_ticker_idle_period * 1.5 + interval '30 seconds'
            then (q.last_tick_seq - previous_tick.tick_event_seq)
                / extract(epoch from q.last_tick_time - previous_tick.tick_time)
        end,
        dead_letters.counted,
        dead_letters_hour.counted,
        retries.counted
    from looked_up q
    left join lateral (
        select t.tick_event_seq
        from pgque.tick t
        where t.tick_queue = q.queue_id
        order by t.tick_id
        limit 1
    ) first_tick on true
    left join lateral (
        select t.tick_time, t.tick_event_seq
        from pgque.tick t
        where t.tick_queue = q.queue_id and t.tick_id < q.last_tick_id
        order by t.tick_id desc
        limit 1
    ) previous_tick on true
    cross join lateral (
        select count(*) as counted
        from (select from pgque.dead_letter d where d.dl_queue_id = q.queue_id limit 10000) d
    ) dead_letters
    cross join lateral (
        select count(*) as counted
        from (select from pgque.dead_letter d
              where d.dl_queue_id = q.queue_id and d.dl_time > now() - interval '1 hour'
              limit 1000) d
    ) dead_letters_hour
    cross join lateral (
        select count(*) as counted
        from (select from pgque.retry_queue r where r.ev_queue = q.queue_id limit 10000) r
    ) retries
$$;

revoke all on function pgque.observed_queues() from public;
grant execute on function pgque.observed_queues() to pgque_monitor;
