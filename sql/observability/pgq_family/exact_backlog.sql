-- How many events a consumer really has before it, counted in the event tables: for when a person asks.
-- The figures of a poll are upper bounds where much waits; rolled-back sends, forced ticks and other
-- consumers' retries are left out here. Counts up to max_events per consumer, at most a million;
-- is_capped tells that there are more. Null: the consumer's position is gone, or an event table is locked.
create or replace function {pack}.exact_backlog(
    queue_name text,
    consumer text default null,        -- null: every consumer of the queue
    max_events int4 default 100000)
returns table (
    consumer_name text,
    pending_events bigint,             -- it could take them now; its open batches included
    unticked_events bigint,            -- they wait for a tick
    is_capped boolean
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    wanted_queue int4 := {pack}.require_queue(exact_backlog.queue_name);
begin
    if max_events is null or max_events not between 1 and 1000000 then
        raise exception 'max_events must be between 1 and 1000000, not %', coalesce(max_events::text, 'null')
            using errcode = 'invalid_parameter_value';
    end if;
    if exact_backlog.consumer is not null then
        perform {pack}.require_consumer(wanted_queue, exact_backlog.consumer);
    end if;

    return query
    with subscription as (
        select s.sub_id, coalesce(s.sub_parent, s.sub_id) as logical_id, s.sub_consumer, s.sub_role,
            position.tick_snapshot as after_snapshot,
            -- a member of a group has what it holds open, the group itself all that comes after
            case when s.sub_role = 'coop_member' then batch_end.tick_snapshot else last_tick.tick_snapshot end
                as tick_snapshot
        from {subscription} s
        left join {tick} position
            on position.tick_queue = s.sub_queue and position.tick_id = s.sub_last_tick
        left join {tick} batch_end
            on batch_end.tick_queue = s.sub_queue and batch_end.tick_id = s.sub_next_tick
        left join lateral (
            select t.tick_snapshot
            from {tick} t
            where t.tick_queue = s.sub_queue
            order by t.tick_id desc
            limit 1
        ) last_tick on true
        where s.sub_queue = wanted_queue and (s.sub_role <> 'coop_member' or s.sub_batch is not null)
    ),
    logical as (
        -- idle members too: what one of them failed on is still the group's
        select coalesce(s.sub_parent, s.sub_id) as logical_id, array_agg(s.sub_id) as sub_ids
        from {subscription} s
        where s.sub_queue = wanted_queue
        group by 1
    ),
    counted as (
        select s.logical_id,
            case when count(*) = count(e.ticked) then sum(least(e.ticked, max_events)) end as pending,
            sum(e.unticked) filter (where s.sub_role <> 'coop_member') as unticked,
            bool_or(e.examined >= max_events) as is_capped
        from subscription s
        join logical l on l.logical_id = s.logical_id
        left join lateral (
            select w.*
            from {pack}.waiting_events(
                wanted_queue, l.sub_ids, s.after_snapshot, s.tick_snapshot, max_events) w
            where s.after_snapshot is not null and s.tick_snapshot is not null
        ) e on true
        group by s.logical_id
    )
    select k.co_name, c.pending::bigint, c.unticked::bigint, c.is_capped
    from counted c
    join {subscription} s on s.sub_id = c.logical_id and s.sub_role <> 'coop_member'
    join {engine}.consumer k on k.co_id = s.sub_consumer
    where exact_backlog.consumer is null or k.co_name = exact_backlog.consumer
    order by k.co_name;
end
$$;

revoke all on function {pack}.exact_backlog(text, text, int4) from public;
grant execute on function {pack}.exact_backlog(text, text, int4) to pgque_monitor;
