-- Everything that the contract tells, observed once, in one snapshot: a few index probes per queue and
-- per subscription, whatever the number of ticks kept, of events waiting, of retries or dead letters.
--
-- Two habits keep the cost flat. A probe has a LIMIT or comes first as an equality: left to join
-- freely, the planner may read all ticks, and a range that begins at the newest tick makes the index
-- collect a page full of entries. And what only some queues have is looked for from its own side: dead
-- letters and retries by hopping through their index from queue to queue.
--
-- A cooperative group is one logical consumer: what its members hold open still counts as pending.
create or replace function {pack}.observed(
    out queues {pack}.observed_queue[],
    out consumers {pack}.observed_consumer[])
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    -- PL/pgSQL keeps the plan: planning this anew for each call would cost more than a small
    -- database's whole poll.
    with recursive
    -- ---- subscriptions, each with the ticks at both ends of its open batch ----
    subscription as materialized (
        select
            s.sub_id, s.sub_queue, s.sub_consumer, s.sub_active, s.sub_batch, s.sub_role, s.sub_parent,
            position.tick_id, position.tick_event_seq, position.tick_time, position.tick_snapshot,
            -- not greatest(): that would turn an unknown into 0
            case when batch_end.tick_event_seq < position.tick_event_seq then 0
                else batch_end.tick_event_seq - position.tick_event_seq end as open_events
        from {engine}.subscription s
        left join lateral (
            select t.tick_id, t.tick_event_seq, t.tick_time, t.tick_snapshot
            from {engine}.tick t
            where t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
            limit 1
        ) position on true
        left join lateral (
            select t.tick_event_seq
            from {engine}.tick t
            where t.tick_queue = s.sub_queue and t.tick_id = s.sub_next_tick
            limit 1
        ) batch_end on true
    ),
    furthest as (
        select s.sub_queue, max(s.tick_id) as tick_id
        from subscription s
        group by s.sub_queue
    ),
    -- ---- what only some queues have ----
    with_dead_letters(queue_id) as (
        (select d.dl_queue_id from {engine}.dead_letter d order by d.dl_queue_id limit 1)
        union all
        select (select d.dl_queue_id from {engine}.dead_letter d
                where d.dl_queue_id > w.queue_id order by d.dl_queue_id limit 1)
        from with_dead_letters w
        where w.queue_id is not null
    ),
    dead_letters as (
        select w.queue_id,
            (select count(*)
             from (select from {engine}.dead_letter d where d.dl_queue_id = w.queue_id limit 10000) d) as counted,
            (select count(*)
             from (select from {engine}.dead_letter d
                   where d.dl_queue_id = w.queue_id and d.dl_time > now() - interval '1 hour'
                   limit 1000) d) as counted_hour
        from with_dead_letters w
        where w.queue_id is not null
    ),
    with_retries(queue_id) as (
        (select r.ev_queue from {engine}.retry_queue r order by r.ev_queue limit 1)
        union all
        select (select r.ev_queue from {engine}.retry_queue r
                where r.ev_queue > w.queue_id order by r.ev_queue limit 1)
        from with_retries w
        where w.queue_id is not null
    ),
    retries as (
        select w.queue_id,
            (select count(*)
             from (select from {engine}.retry_queue r where r.ev_queue = w.queue_id limit 10000) r) as counted
        from with_retries w
        where w.queue_id is not null
    ),
    overdue_retries as (
        select r.ev_queue as queue_id, count(*) as counted, min(r.ev_retry_after) as since
        from (
            select r.ev_queue, r.ev_retry_after
            from {engine}.retry_queue r
            where r.ev_retry_after < now() - interval '5 minutes'
            order by r.ev_retry_after
            limit 10000
        ) r
        group by r.ev_queue
    ),
    -- ---- queues with their newest ticks and their event sequence ----
    ticked as materialized (
        select
            q.*,
            seq.sent,
            last_tick.tick_id as last_tick_id,
            last_tick.tick_time as last_tick_time,
            last_tick.tick_event_seq as last_tick_seq,
            last_tick.tick_snapshot as last_tick_snapshot,
            case when seq.sent < last_tick.tick_event_seq then 0
                else seq.sent - last_tick.tick_event_seq end as sequence_ahead,
            now() - last_tick.tick_time > q.queue_ticker_idle_period * 1.5 + interval '30 seconds' as tick_overdue
        from {engine}.queue q
        left join furthest f on f.sub_queue = q.queue_id
        left join lateral (
            select coalesce(pg_sequence_last_value(s.oid), 0) as sent  -- null: nothing was ever sent
            from (select to_regclass(q.queue_event_seq) as oid) s
            where s.oid is not null and has_sequence_privilege(s.oid, 'select')
        ) seq on true
        left join lateral (
            select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot
            from {engine}.tick t
            where t.tick_queue = q.queue_id and t.tick_id >= coalesce(f.tick_id, 0)
            order by t.tick_id desc
            limit 1
        ) last_tick on true
    ),
    -- A running ticker covers new events within ticker_max_lag. Only when it is late is it worth asking
    -- the event table whether the sequence ran ahead of anything that can be delivered.
    queue as materialized (
        select
            q.*,
            case when late.is_late and oldest.unticked_since is null then 0 else q.sequence_ahead end as unticked,
            oldest.unticked_since
        from ticked q
        cross join lateral (
            select q.sequence_ahead > 0
                and now() - q.last_tick_time > q.queue_ticker_max_lag + interval '5 seconds' as is_late
        ) late
        cross join lateral (
            select case when late.is_late then {pack}.unticked_since(q.queue_id) end as unticked_since
        ) oldest
    ),
    -- ---- logical consumers ----
    member as (
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
    positioned as (
        select
            q.queue_id, q.queue_name, c.co_name, s.sub_id,
            q.unticked, q.unticked_since, q.last_tick_id, q.last_tick_time,
            q.queue_switch_step2, q.queue_rotation_period,
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
            -- the oldest event owed to it comes after this tick
            coalesce(behind.tick_id, s.tick_id) as base_id,
            coalesce(behind.tick_event_seq, s.tick_event_seq) as base_seq,
            coalesce(behind.tick_time, s.tick_time) as base_time,
            coalesce(behind.tick_snapshot, s.tick_snapshot) as base_snapshot
        from subscription s
        join queue q on q.queue_id = s.sub_queue
        join {engine}.consumer c on c.co_id = s.sub_consumer
        left join member m on m.sub_parent = s.sub_id
        left join lateral (
            select t.tick_id, t.tick_event_seq, t.tick_time, t.tick_snapshot
            from {engine}.tick t
            where m.oldest_tick_id is not null and t.tick_queue = s.sub_queue
                and t.tick_id = least(s.tick_id, m.oldest_tick_id)
            limit 1
        ) behind on true
        where s.sub_role <> 'coop_member'
    ),
    placed as materialized (
        select p.*, next_tick.tick_event_seq = p.base_seq as idle_after
        from positioned p
        left join lateral (
            select t.tick_event_seq
            from (
                select t.tick_event_seq
                from {engine}.tick t
                where t.tick_queue = p.queue_id and t.tick_id = p.base_id + 1
                union all  -- ids have gaps: look further only then
                (select t.tick_event_seq
                 from {engine}.tick t
                 where t.tick_queue = p.queue_id and t.tick_id > p.base_id
                 order by t.tick_id
                 limit 1)
            ) t
            where p.ticked_pending > 0
            limit 1
        ) next_tick on true
    ),
    -- Its oldest pending event came after the newest tick that still carries the same event_seq. That is
    -- nearly always the base itself; after an idle time it lies many ticks later, so it is searched by
    -- halving the interval, never by reading all ticks between.
    search(sub_id, queue_id, base_seq, low, high) as (
        select p.sub_id, p.queue_id, p.base_seq, p.base_id, p.last_tick_id
        from placed p
        where p.idle_after
        union all
        select s.sub_id, s.queue_id, s.base_seq,
            case when probe.is_idle then probe.tick_id else s.low end,
            case when probe.is_idle then s.high else s.low + (s.high - s.low) / 2 end
        from search s
        cross join lateral (
            select t.tick_id, t.tick_id < s.high and t.tick_event_seq = s.base_seq as is_idle
            from {engine}.tick t
            where t.tick_queue = s.queue_id and t.tick_id >= s.low + (s.high - s.low) / 2
            order by t.tick_id
            limit 1
        ) probe
        where s.high - s.low > 1
    ),
    idle_until as materialized (
        select s.sub_id, t.tick_time
        from search s
        cross join lateral (
            select t.tick_time
            from {engine}.tick t
            where t.tick_queue = s.queue_id and t.tick_id = s.low
            limit 1
        ) t
        where s.high - s.low <= 1
    ),
    consumer as materialized (
        select
            p.queue_id,
            p.queue_name,
            p.co_name as consumer_name,
            p.last_active,
            p.missing_tick,
            p.acked,
            p.ticked_pending,
            p.ticked_pending + p.unticked as pending,
            case
                when p.ticked_pending > 0
                    then greatest(now() - coalesce(i.tick_time, p.base_time), interval '0')
                when p.missing_tick or p.unticked is null then null
                when p.unticked > 0
                    then greatest(now() - coalesce(p.unticked_since, p.last_tick_time), interval '0')
                else interval '0'
            end as lag,
            p.open_batches,
            p.open_events,
            p.open_since,
            p.batch_id,
            p.queue_rotation_period as rotation_period,
            pg_snapshot_xmin(p.base_snapshot) <= p.queue_switch_step2 as holds_rotation
        from placed p
        left join idle_until i on i.sub_id = p.sub_id
    ),
    per_queue as (
        select
            c.queue_id,
            count(*)::int4 as consumers,
            max(c.pending) as depth,
            max(c.lag) as oldest,
            (array_agg(c.consumer_name order by c.lag desc nulls first)
                filter (where c.holds_rotation or c.missing_tick))[1] as blocking_consumer
        from consumer c
        group by c.queue_id
    ),
    complete as (
        select
            q.queue_id,
            q.queue_name,
            q.queue_ticker_paused,
            q.queue_external_ticker,
            q.queue_ticker_max_lag,
            q.queue_ticker_idle_period,
            q.queue_cur_table,
            q.queue_switch_time,
            q.queue_switch_step2 is null,
            q.queue_rotation_period,
            q.sent,
            q.unticked,
            q.unticked_since,
            q.last_tick_id,
            q.last_tick_time,
            q.tick_overdue,
            pg_snapshot_xmin(q.last_tick_snapshot) > pg_snapshot_xmax(pg_current_snapshot()),
            -- Between the last two ticks, whatever their ids: a rolled-back tick leaves a gap. Unknown
            -- once the ticker is overdue, else a dead ticker would show its last rate for ever.
            case
                when not q.tick_overdue
                    and q.last_tick_seq >= previous_tick.tick_event_seq
                    and q.last_tick_time > previous_tick.tick_time
                then (q.last_tick_seq - previous_tick.tick_event_seq)
                    / extract(epoch from q.last_tick_time - previous_tick.tick_time)
            end,
            coalesce(p.consumers, 0),
            -- without consumers nothing waits for anybody; with consumers of unknown position it is unknown
            case when p.consumers is null then 0 else p.depth end,
            case when p.consumers is null then interval '0' else p.oldest end,
            p.blocking_consumer,
            p.consumers is null and q.sent > oldest_tick.tick_event_seq,
            coalesce(d.counted, 0),
            coalesce(d.counted_hour, 0),
            coalesce(r.counted, 0),
            coalesce(o.counted, 0),
            o.since
        from queue q
        left join per_queue p on p.queue_id = q.queue_id
        left join dead_letters d on d.queue_id = q.queue_id
        left join retries r on r.queue_id = q.queue_id
        left join overdue_retries o on o.queue_id = q.queue_id
        left join lateral (
            select t.tick_time, t.tick_event_seq
            from (
                select t.tick_time, t.tick_event_seq
                from {engine}.tick t
                where t.tick_queue = q.queue_id and t.tick_id = q.last_tick_id - 1
                union all
                (select t.tick_time, t.tick_event_seq
                 from {engine}.tick t
                 where t.tick_queue = q.queue_id and t.tick_id < q.last_tick_id
                 order by t.tick_id desc
                 limit 1)
            ) t
            limit 1
        ) previous_tick on true
        left join lateral (
            select t.tick_event_seq
            from {engine}.tick t
            where t.tick_queue = q.queue_id and p.consumers is null
            order by t.tick_id
            limit 1
        ) oldest_tick on true
    )
    select
        (select array_agg(c::{pack}.observed_queue) from complete c),
        (select array_agg(c::{pack}.observed_consumer) from consumer c)
    into queues, consumers;
end
$$;

revoke all on function {pack}.observed() from public;
grant execute on function {pack}.observed() to pgque_monitor;
