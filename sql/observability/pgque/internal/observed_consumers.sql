-- Every consumer's raw figures in one pass, derived from the queues already observed. A cooperative
-- group is one logical consumer: what its members hold open still counts as pending for it.
create or replace function pgque.observed_consumers(queues pgque.observed_queue[])
returns setof pgque.observed_consumer
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
rows 1000
as $$
    with recursive queue as materialized (
        select * from unnest(queues)
    ),
    -- One row per subscription with the ticks at both ends of its open batch. LIMIT keeps each a probe
    -- of the primary key: joined freely, the planner may read all ticks instead.
    subscription as materialized (
        select
            s.sub_id, s.sub_queue, s.sub_consumer, s.sub_active, s.sub_batch, s.sub_role, s.sub_parent,
            position.tick_id, position.tick_event_seq, position.tick_snapshot,
            -- not greatest(): that would turn an unknown into 0
            case when batch_end.tick_event_seq < position.tick_event_seq then 0
                else batch_end.tick_event_seq - position.tick_event_seq end as open_events
        from pgque.subscription s
        left join lateral (
            select t.tick_id, t.tick_event_seq, t.tick_snapshot
            from pgque.tick t
            where t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
            limit 1
        ) position on true
        left join lateral (
            select t.tick_event_seq
            from pgque.tick t
            where t.tick_queue = s.sub_queue and t.tick_id = s.sub_next_tick
            limit 1
        ) batch_end on true
    ),
    member as materialized (
        select
            m.sub_parent,
            max(m.sub_active) as last_active,
            count(m.sub_batch)::int4 as open_batches,
            sum(m.open_events) filter (where m.sub_batch is not null) as open_events,
            min(m.sub_active) filter (where m.sub_batch is not null) as open_since,
            min(m.sub_batch) as batch_id,
            min(m.tick_id) filter (where m.sub_batch is not null) as oldest_tick_id
        from subscription m
        where m.sub_role = 'coop_member'
        group by m.sub_parent
    ),
    consumer as materialized (
        select
            q.queue_id, q.queue_name, c.co_name, s.sub_id,
            q.unticked, q.unticked_since, q.last_tick_id, q.last_tick_seq, q.last_tick_time,
            q.switch_step2,
            greatest(s.sub_active, m.last_active) as last_active,
            s.tick_id is null as missing_tick,
            s.tick_event_seq as acked,
            case when q.last_tick_seq < s.tick_event_seq then 0 else q.last_tick_seq - s.tick_event_seq end
                + coalesce(m.open_events, 0) as ticked_pending,
            (s.sub_batch is not null)::int4 + coalesce(m.open_batches, 0) as open_batches,
            case when s.sub_batch is not null then s.open_events else 0 end
                + coalesce(m.open_events, 0) as open_events,
            least(case when s.sub_batch is not null then s.sub_active end, m.open_since) as open_since,
            coalesce(s.sub_batch, m.batch_id) as batch_id,
            least(s.tick_id, m.oldest_tick_id) as base_tick_id
        from subscription s
        join queue q on q.queue_id = s.sub_queue
        join pgque.consumer c on c.co_id = s.sub_consumer
        left join member m on m.sub_parent = s.sub_id
        where s.sub_role <> 'coop_member'
    ),
    base as materialized (
        select c.*, t.tick_event_seq as base_seq, t.tick_time as base_time, t.tick_snapshot as base_snapshot
        from consumer c
        left join lateral (
            select t.tick_event_seq, t.tick_time, t.tick_snapshot
            from pgque.tick t
            where t.tick_queue = c.queue_id and t.tick_id = c.base_tick_id
            limit 1
        ) t on true
    ),
    -- Its oldest pending event came after the newest tick that still carries the position's event_seq.
    -- That is nearly always the position itself; after a long idle time it lies many ticks later, so
    -- it is searched by halving the interval, never by reading all ticks between.
    search(sub_id, queue_id, base_seq, low, high) as (
        select b.sub_id, b.queue_id, b.base_seq, b.base_tick_id,
            case when next_tick.tick_event_seq > b.base_seq then b.base_tick_id + 1 else b.last_tick_id end
        from base b
        cross join lateral (
            select t.tick_event_seq
            from pgque.tick t
            where t.tick_queue = b.queue_id and t.tick_id > b.base_tick_id
            order by t.tick_id
            limit 1
        ) next_tick
        where b.ticked_pending > 0
        union all
        select s.sub_id, s.queue_id, s.base_seq,
            case when probe.tick_id < s.high and probe.tick_event_seq = s.base_seq
                then probe.tick_id else s.low end,
            case when probe.tick_id < s.high and probe.tick_event_seq = s.base_seq
                then s.high else s.low + (s.high - s.low) / 2 end
        from search s
        cross join lateral (
            select t.tick_id, t.tick_event_seq
            from pgque.tick t
            where t.tick_queue = s.queue_id and t.tick_id >= s.low + (s.high - s.low) / 2
            order by t.tick_id
            limit 1
        ) probe
        where s.high - s.low > 1
    ),
    waiting as materialized (
        select s.sub_id, t.tick_time as since
        from search s
        cross join lateral (
            select t.tick_time
            from pgque.tick t
            where t.tick_queue = s.queue_id and t.tick_id = s.low
            limit 1
        ) t
        where s.high - s.low <= 1
    )
    select
        b.queue_id,
        b.queue_name,
        b.co_name,
        b.last_active,
        b.missing_tick,
        b.acked,
        b.ticked_pending,
        b.ticked_pending + b.unticked,
        case
            when b.ticked_pending > 0 then greatest(now() - w.since, interval '0')
            when b.missing_tick or b.unticked is null then null
            when b.unticked > 0 then greatest(now() - coalesce(b.unticked_since, b.last_tick_time), interval '0')
            else interval '0'
        end,
        b.open_batches,
        b.open_events,
        b.open_since,
        b.batch_id,
        pg_snapshot_xmin(b.base_snapshot) <= b.switch_step2
    from base b
    left join waiting w on w.sub_id = b.sub_id
$$;

revoke all on function pgque.observed_consumers(pgque.observed_queue[]) from public;
grant execute on function pgque.observed_consumers(pgque.observed_queue[]) to pgque_monitor;
