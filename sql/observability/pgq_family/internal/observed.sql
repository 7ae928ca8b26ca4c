-- Everything that the contract tells, observed once, in one snapshot: a few index probes per queue and
-- per subscription, whatever the number of ticks kept, of events waiting, of retries or dead letters.
--
-- Three habits keep the cost flat. A probe has a LIMIT: left to join freely, the planner may read all
-- ticks. A probe begins where a subscription stands: a range that only ends at the newest tick makes the
-- index collect a page full of entries. And what only some queues have is looked for from its own side:
-- by hopping through an index of dead letters from queue to queue, and of retries from owner to owner.
--
-- Pending events are first taken from the event sequence and the ticks, an upper bound that costs
-- nothing. Then waiting_events() looks at the event tables for the 25 consumers and the 25 queues that
-- wait longest and for the 25 fastest queues, so that rolled-back sends, forced ticks and other
-- consumers' retries count for nothing; where it finds 200 events, the bound stands.
--
-- A cooperative group is one logical consumer: what its members hold open still counts as pending.
create or replace function {pack}.observed(
    out queues {pack}.observed_queue[],
    out consumers {pack}.observed_consumer[])
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off     -- the plan is kept while the session lives, and must stay right when
set enable_bitmapscan = off  -- tables fill up that were empty when it was made
as $$
#variable_conflict use_column
declare
    look_at constant int4 := 200;  -- events of one queue or consumer
    -- A sequence is logged 32 numbers ahead, so on a standby only so much less is certain.
    logged_ahead constant int4 := case when pg_is_in_recovery() then 32 else 0 end;
begin
    -- PL/pgSQL keeps the plan: planning this anew for each call would cost more than a small
    -- database's whole poll.
    with recursive
    subscriptions as materialized (
        select s.sub_id, s.sub_queue, s.sub_consumer, s.sub_last_tick, s.sub_next_tick, s.sub_active,
            s.sub_batch, s.sub_role, s.sub_parent
        from {subscription} s
    ),
    furthest as (
        select s.sub_queue, max(s.sub_last_tick) as tick_id
        from subscriptions s
        group by s.sub_queue
    ),
    -- ---- what only some queues have ----
    with_dead_letters(queue_id) as (
        (select d.dl_queue_id from {dead_letter} d order by d.dl_queue_id limit 1)
        union all
        select (select d.dl_queue_id from {dead_letter} d
                where d.dl_queue_id > w.queue_id order by d.dl_queue_id limit 1)
        from with_dead_letters w
        where w.queue_id is not null
    ),
    dead_letters as (
        select w.queue_id, newest.counted, newest.counted_hour
        from with_dead_letters w
        cross join lateral (
            select count(*) as counted, count(*) filter (where d.dl_time > now() - interval '1 hour') as counted_hour
            from (
                select d.dl_time
                from {dead_letter} d
                where d.dl_queue_id = w.queue_id
                order by d.dl_time desc
                limit 2000
            ) d
        ) newest
        where w.queue_id is not null
    ),
    with_retries(owner, queue_id) as (
        (select r.ev_owner, r.ev_queue from {engine}.retry_queue r order by r.ev_owner limit 1)
        union all
        select r.ev_owner, r.ev_queue
        from with_retries w
        cross join lateral (
            select r.ev_owner, r.ev_queue
            from {engine}.retry_queue r
            where r.ev_owner > w.owner
            order by r.ev_owner
            limit 1
        ) r
    ),
    retries as (
        select w.queue_id, least(sum(r.counted), 2000)::bigint as counted
        from with_retries w
        cross join lateral (
            select count(*) as counted
            from (select from {engine}.retry_queue r where r.ev_owner = w.owner limit 2000) r
        ) r
        group by w.queue_id
    ),
    overdue_retries as (
        select r.ev_queue as queue_id, count(*) as counted, min(r.ev_retry_after) as since
        from (
            select r.ev_queue, greatest(r.ev_retry_after, 'epoch') as ev_retry_after  -- '-infinity' is a time, too
            from {engine}.retry_queue r
            where r.ev_retry_after < now()
            order by r.ev_retry_after
            limit 2000
        ) r
        join ticked q on q.queue_id = r.ev_queue
        where now() - r.ev_retry_after > q.retry_grace
        group by r.ev_queue
    ),
    -- ---- queues with their two newest ticks and their event sequence ----
    ticked as materialized (
        select
            q.queue_id, q.queue_name, q.queue_ticker_paused, q.queue_external_ticker, q.queue_ticker_max_lag,
            q.queue_ticker_idle_period, q.queue_cur_table, q.queue_switch_time, q.queue_switch_step2,
            q.queue_rotation_period,
            coalesce(own.unticked_grace, common.unticked_grace) as unticked_grace,
            coalesce(own.lag_warning, common.lag_warning, q.queue_rotation_period / 2) as lag_warning,
            coalesce(own.lag_critical, common.lag_critical, q.queue_rotation_period) as lag_critical,
            coalesce(own.stuck_after, common.stuck_after,
                greatest(interval '1 hour', q.queue_rotation_period / 2)) as stuck_after,
            coalesce(own.rotation_grace, common.rotation_grace) as rotation_grace,
            coalesce(own.retry_grace, common.retry_grace) as retry_grace,
            coalesce(own.dead_letters_warning, common.dead_letters_warning) as dead_letters_warning,
            coalesce(own.dead_letters_hour_warning, common.dead_letters_hour_warning)
                as dead_letters_hour_warning,
            coalesce(own.dead_letters_hour_critical, common.dead_letters_hour_critical)
                as dead_letters_hour_critical,
            seq.sent,
            last_tick.tick_id as last_tick_id,
            last_tick.tick_time as last_tick_time,
            last_tick.tick_event_seq as last_tick_seq,
            last_tick.tick_snapshot as last_tick_snapshot,
            coalesce(last_tick.previous_id, previous_tick.tick_id) as previous_tick_id,
            coalesce(last_tick.previous_time, previous_tick.tick_time) as previous_tick_time,
            coalesce(last_tick.previous_seq, previous_tick.tick_event_seq) as previous_tick_seq,
            coalesce(last_tick.previous_snapshot, previous_tick.tick_snapshot) as previous_tick_snapshot,
            -- not greatest(): that would turn an unknown into 0
            case when seq.sent < last_tick.tick_event_seq then 0
                else seq.sent - last_tick.tick_event_seq end as sequence_ahead,
            seq.drawn > last_tick.tick_event_seq and seq.drawn > {unused_sequence} as may_be_ahead,
            -- in this order no limit is too large to calculate with, here and below
            (now() - last_tick.tick_time - coalesce(own.tick_grace, common.tick_grace)) / 1.5
                > q.queue_ticker_idle_period as tick_overdue
        from {engine}.queue q
        left join {pack}.health_threshold common on common.queue_name = '*'
        left join {pack}.health_threshold own on own.queue_name = q.queue_name
        left join furthest f on f.sub_queue = q.queue_id
        left join lateral (
            select t.*
            from (
                -- One probe for both ticks, near the furthest consumer ...
                (select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot,
                    lead(t.tick_id) over newest_first as previous_id,
                    lead(t.tick_time) over newest_first as previous_time,
                    lead(t.tick_event_seq) over newest_first as previous_seq,
                    lead(t.tick_snapshot) over newest_first as previous_snapshot
                 from {tick} t
                 where t.tick_queue = q.queue_id and t.tick_id >= f.tick_id - 1
                 window newest_first as (order by t.tick_id desc)
                 limit 1)
                union all  -- ... and where there is none, anywhere
                (select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot, null, null, null, null
                 from {tick} t
                 where t.tick_queue = q.queue_id
                 order by t.tick_id desc
                 limit 1)
            ) t
            limit 1
        ) last_tick on true
        left join lateral (
            select t.tick_id, t.tick_time, t.tick_event_seq, t.tick_snapshot
            from {tick} t
            where last_tick.previous_id is null
                and t.tick_queue = q.queue_id and t.tick_id < last_tick.tick_id
            order by t.tick_id desc
            limit 1
        ) previous_tick on true
        left join lateral (
            select d.drawn,
                case when logged_ahead = 0 then d.drawn
                    else greatest(d.drawn - logged_ahead, last_tick.tick_event_seq, 0) end as sent
            from (
                select coalesce(pg_sequence_last_value(s.oid), 0) as drawn  -- null: nothing was ever sent
                from (select to_regclass(q.queue_event_seq) as oid offset 0) s
                where has_sequence_privilege(s.oid, 'select')
                offset 0
            ) d
        ) seq on true
    ),
    unticked as materialized (
        select c.queue_id,
            case when e.examined < look_at or c.sequence_ahead < e.unticked then e.unticked
                else c.sequence_ahead end as events,
            case when e.unticked > 0 then greatest(e.unticked_since, c.ticked_at) end as since,
            -- without a sequence that ran ahead the ticker has nothing to do before the idle period ends
            c.may_be_ahead and e.unticked > 0
                and now() - greatest(e.unticked_since, c.ticked_at) - c.unticked_grace > c.queue_ticker_max_lag
                as ticker_late
        from (
            select q.queue_id, q.sequence_ahead, q.may_be_ahead, q.last_tick_snapshot, q.queue_ticker_max_lag,
                q.unticked_grace,
                case when q.last_tick_time <= now() then q.last_tick_time end as ticked_at  -- else of another clock
            from ticked q
            where q.may_be_ahead
                or q.sequence_ahead > 0
                -- an event committed late: its sequence number is older than the tick
                or {snapshot}_xmin(q.last_tick_snapshot) < {snapshot}_xmax(q.last_tick_snapshot)
                -- a sequence that was set back tells nothing
                or q.sent < q.last_tick_seq
            -- nobody is paged for what waits in a paused queue, however long
            order by q.may_be_ahead and not (q.queue_ticker_paused or q.queue_external_ticker) desc,
                q.may_be_ahead desc, q.last_tick_time
            limit 25
        ) c
        cross join lateral {pack}.waiting_events(
            c.queue_id, null, c.last_tick_snapshot, c.last_tick_snapshot, look_at) e
        where e.unticked is not null
    ),
    fast as materialized (
        select c.queue_id, e.ticked
        from (
            select q.queue_id, q.previous_tick_snapshot, q.last_tick_snapshot
            from ticked q
            where q.last_tick_seq > q.previous_tick_seq and q.last_tick_time > q.previous_tick_time
            order by (q.last_tick_seq - q.previous_tick_seq)
                / extract(epoch from q.last_tick_time - q.previous_tick_time) desc
            limit 25
        ) c
        cross join lateral {pack}.waiting_events(
            c.queue_id, null, c.previous_tick_snapshot, c.last_tick_snapshot, look_at) e
        where e.examined < look_at
    ),
    -- ---- logical consumers ----
    member as (
        select
            m.sub_parent,
            array_agg(m.sub_id) as sub_ids,
            max(m.sub_active) as last_active,
            count(m.sub_batch)::int4 as open_batches,
            -- unknown as soon as one is
            case when not bool_or(m.batch_lost)
                then coalesce(sum(greatest(m.end_seq - m.seq, 0)), 0)::bigint end as open_events,
            bool_or(m.batch_lost) as batch_lost,
            array_agg(m.tick_snapshot) filter (where m.sub_batch is not null) as batch_starts,
            array_agg(m.end_snapshot) filter (where m.sub_batch is not null) as batch_ends,
            min(m.sub_active) filter (where m.sub_batch is not null) as open_since,
            min(m.sub_batch) as batch_id,
            min(m.tick_id) as oldest_tick_id
        from (
            select s.*, batch.*, s.sub_batch is not null and (batch.seq is null or batch.end_seq is null) as batch_lost
            from subscriptions s
            left join lateral (
                select t.tick_id, t.tick_event_seq as seq, t.tick_snapshot,
                    batch_end.tick_event_seq as end_seq, batch_end.tick_snapshot as end_snapshot
                from {tick} t
                left join {tick} batch_end
                    on batch_end.tick_queue = s.sub_queue and batch_end.tick_id = s.sub_next_tick
                where s.sub_batch is not null and t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
                limit 1
            ) batch on true
            where s.sub_role = 'coop_member'
        ) m
        group by m.sub_parent
    ),
    standing as materialized (
        select
            s.queue_id, s.queue_name, s.co_name, s.sub_id, s.sub_ids,
            s.sent, s.unticked, s.unticked_since, s.last_tick_id, s.last_tick_time, s.last_tick_seq,
            s.last_tick_snapshot, s.queue_switch_step2, s.lag_warning, s.lag_critical, s.stuck_after,
            greatest(s.sub_active, s.member_active) as last_active,
            s.tick_id is null or s.batch_lost as missing_tick,
            s.seq as acked, s.snapshot, s.batch_starts, s.batch_ends,
            case when s.batch_lost then null
                when s.last_tick_seq < s.seq then s.member_events
                else s.last_tick_seq - s.seq + s.member_events end as bound,
            s.member_batches + case when s.sub_batch is null then 0 else 1 end as open_batches,
            case when s.sub_batch is null then s.member_events
                when s.end_seq < s.seq then s.member_events
                else s.end_seq - s.seq + s.member_events end as open_events,
            least(case when s.sub_batch is not null then s.sub_active end, s.member_open_since) as open_since,
            coalesce(s.sub_batch, s.member_batch) as batch_id,
            -- the oldest event owed to it comes after this tick
            coalesce(behind.tick_id, s.tick_id) as base_id,
            coalesce(behind.tick_event_seq, s.seq) as base_seq,
            coalesce(behind.tick_time, s.time) as base_time,
            coalesce(behind.tick_snapshot, s.snapshot) as base_snapshot,
            case when behind.tick_id is null then s.next_seq end as next_seq
        from (
            -- Most stand on one of the two newest ticks, which needs no probe.
            select
                s.sub_id, s.sub_queue, s.sub_active, s.sub_batch, c.co_name,
                q.queue_id, q.queue_name, q.sent, q.last_tick_id, q.last_tick_time, q.last_tick_seq,
                q.last_tick_snapshot, q.queue_switch_step2, q.lag_warning, q.lag_critical, q.stuck_after,
                coalesce(u.events, q.sequence_ahead) as unticked,
                u.since as unticked_since,
                case when s.sub_last_tick in (q.last_tick_id, q.previous_tick_id, older.tick_id)
                    then s.sub_last_tick end as tick_id,
                case s.sub_last_tick
                    when q.last_tick_id then q.last_tick_seq
                    when q.previous_tick_id then q.previous_tick_seq
                    when older.tick_id then older.tick_event_seq end as seq,
                case s.sub_last_tick
                    when q.last_tick_id then q.last_tick_time
                    when q.previous_tick_id then q.previous_tick_time
                    when older.tick_id then older.tick_time end as time,
                case s.sub_last_tick
                    when q.last_tick_id then q.last_tick_snapshot
                    when q.previous_tick_id then q.previous_tick_snapshot
                    when older.tick_id then older.tick_snapshot end as snapshot,
                case s.sub_last_tick
                    when q.previous_tick_id then q.last_tick_seq
                    when older.tick_id then older.next_seq end as next_seq,
                batch_end.tick_event_seq as end_seq,
                coalesce(m.batch_lost, false)
                    or s.sub_batch is not null and (batch_end.tick_event_seq is null
                        or (s.sub_last_tick in (q.last_tick_id, q.previous_tick_id, older.tick_id)) is not true)
                    as batch_lost,
                m.sub_ids, m.batch_starts, m.batch_ends,
                m.last_active as member_active,
                m.open_since as member_open_since,
                m.batch_id as member_batch,
                coalesce(m.open_batches, 0) as member_batches,
                case when m.sub_parent is null then 0 else m.open_events end as member_events,
                m.oldest_tick_id
            from subscriptions s
            join ticked q on q.queue_id = s.sub_queue
            join {engine}.consumer c on c.co_id = s.sub_consumer
            left join unticked u on u.queue_id = s.sub_queue
            left join member m on m.sub_parent = s.sub_id
            left join lateral (
                select t.tick_id, t.tick_event_seq, t.tick_time, t.tick_snapshot,
                    lead(t.tick_event_seq) over (order by t.tick_id) as next_seq
                from {tick} t
                where t.tick_queue = s.sub_queue
                    and t.tick_id between s.sub_last_tick and s.sub_last_tick + 1
                    and (s.sub_last_tick in (q.last_tick_id, q.previous_tick_id)) is not true
                order by t.tick_id
                limit 1
            ) older on true
            left join lateral (
                select t.tick_event_seq
                from {tick} t
                where t.tick_queue = s.sub_queue and t.tick_id = s.sub_next_tick
                limit 1
            ) batch_end on true
            where s.sub_role <> 'coop_member'
            offset 0  -- work these out once
        ) s
        left join lateral (
            select t.tick_id, t.tick_event_seq, t.tick_time, t.tick_snapshot
            from {tick} t
            where s.oldest_tick_id < s.tick_id and t.tick_queue = s.sub_queue and t.tick_id = s.oldest_tick_id
            limit 1
        ) behind on true
    ),
    counted as materialized (
        select c.sub_id,
            case when bool_and(e.examined < look_at) or c.bound < sum(e.ticked) then sum(e.ticked)::bigint
                else c.bound end as ticked,
            case when bool_and(e.examined < look_at) then sum(e.unticked) filter (where span.is_last)::bigint
                else c.unticked end as unticked,
            bool_or(e.late > 0) as some_late
        from (
            select s.*
            from standing s
            where s.bound + s.unticked > 0
                or s.bound is not null and (
                    {snapshot}_xmin(s.base_snapshot) < {snapshot}_xmax(s.base_snapshot)
                    -- the sequence doesn't tell: not used yet, or set back
                    or s.base_seq < {unused_sequence} and s.sent > 0
                    or s.last_tick_seq < s.base_seq)
            order by s.bound + s.unticked > 0 desc, s.base_time
            limit 25
        ) c
        -- What members have finished lies between what others hold and where the group stands.
        cross join lateral (
            select c.snapshot as span_start, c.last_tick_snapshot as span_end, true as is_last
            union all
            select b.*, false from unnest(c.batch_starts, c.batch_ends) b
        ) span
        cross join lateral {pack}.waiting_events(
            c.queue_id, c.sub_id || coalesce(c.sub_ids, '{}'), span.span_start, span.span_end, look_at) e
        where e.examined is not null
        group by c.sub_id, c.bound, c.unticked
    ),
    -- Its oldest pending event came after the newest tick that still carries the same event_seq, unless it
    -- was committed late. That is nearly always the base itself; after an idle time it lies many ticks
    -- later, so it is searched by halving the interval, never by reading all ticks between.
    search(sub_id, queue_id, base_seq, low, high) as (
        select s.sub_id, s.queue_id, s.base_seq, s.base_id, s.last_tick_id
        from standing s
        left join counted c on c.sub_id = s.sub_id
        left join lateral (
            select t.tick_event_seq
            from {tick} t
            where s.next_seq is null and t.tick_queue = s.queue_id and t.tick_id > s.base_id
            order by t.tick_id
            limit 1
        ) next_tick on true
        where s.base_id < s.last_tick_id and s.base_seq >= {unused_sequence}
            and coalesce(s.next_seq, next_tick.tick_event_seq) = s.base_seq
            and coalesce(c.ticked, s.bound) > 0 and c.some_late is not true
        union all
        select s.sub_id, s.queue_id, s.base_seq,
            case when probe.is_idle then probe.tick_id else s.low end,
            case when probe.is_idle then s.high else s.low + (s.high - s.low) / 2 end
        from search s
        cross join lateral (
            select t.tick_id, t.tick_id < s.high and t.tick_event_seq = s.base_seq as is_idle
            from {tick} t
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
            from {tick} t
            where t.tick_queue = s.queue_id and t.tick_id = s.low
            limit 1
        ) t
        where s.high - s.low <= 1
    ),
    consumer as materialized (
        select
            s.queue_id,
            s.queue_name,
            s.co_name as consumer_name,
            s.last_active,
            s.missing_tick,
            s.acked,
            s.ticked_pending,
            s.ticked_pending + s.unticked_pending as pending,
            case
                when s.ticked_pending > 0 then greatest(now() - s.pending_since, interval '0')
                when s.missing_tick or s.ticked_pending is null or s.unticked_pending is null then null
                when s.unticked_pending > 0
                    then greatest(now() - coalesce(s.unticked_since, s.last_tick_time), interval '0')
                else interval '0'
            end as lag,
            s.open_batches,
            s.open_events,
            s.open_since,
            s.batch_id,
            {snapshot}_xmin(s.base_snapshot) <= s.queue_switch_step2 as holds_rotation,
            s.lag_warning,
            s.lag_critical,
            s.stuck_after
        from (
            select s.*,
                coalesce(c.ticked, s.bound) as ticked_pending,
                coalesce(c.unticked, s.unticked) as unticked_pending,
                coalesce(i.tick_time, s.base_time) as pending_since
            from standing s
            left join counted c on c.sub_id = s.sub_id
            left join idle_until i on i.sub_id = s.sub_id
        ) s
    ),
    per_queue as (
        select
            c.queue_id,
            count(*)::int4 as consumers,
            max(c.pending) as depth,
            max(c.lag) as oldest
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
            coalesce(u.events, q.sequence_ahead),
            u.since,
            q.last_tick_id,
            q.last_tick_time,
            q.tick_overdue,
            u.ticker_late,
            {snapshot}_xmin(q.last_tick_snapshot) > {snapshot}_xmax({current_snapshot}()),
            -- Between the last two ticks, whatever their ids: a rolled-back tick leaves a gap. Unknown
            -- once the ticker is late, else a dead ticker would show its last rate for ever.
            case
                when not q.tick_overdue and u.ticker_late is not true
                    and q.last_tick_seq >= q.previous_tick_seq
                    and q.last_tick_time > q.previous_tick_time
                then coalesce(v.ticked, q.last_tick_seq - q.previous_tick_seq)
                    / extract(epoch from q.last_tick_time - q.previous_tick_time)
            end,
            coalesce(p.consumers, 0),
            -- without consumers nothing waits for anybody; with consumers of unknown position it is unknown
            case when p.consumers is null then 0 else p.depth end,
            case when p.consumers is null then interval '0' else p.oldest end,
            p.consumers is null and q.sent > oldest_tick.tick_event_seq,
            coalesce(d.counted, {no_dead_letters}),
            coalesce(d.counted_hour, {no_dead_letters}),
            coalesce(r.counted, 0),
            coalesce(o.counted, 0),
            o.since,
            q.rotation_grace,
            q.dead_letters_warning,
            q.dead_letters_hour_warning,
            q.dead_letters_hour_critical
        from ticked q
        left join unticked u on u.queue_id = q.queue_id
        left join fast v on v.queue_id = q.queue_id
        left join per_queue p on p.queue_id = q.queue_id
        left join dead_letters d on d.queue_id = q.queue_id
        left join retries r on r.queue_id = q.queue_id
        left join overdue_retries o on o.queue_id = q.queue_id
        left join lateral (
            select t.tick_event_seq
            from {tick} t
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
