-- Open the next batch of a cooperative group for one of its members: its own if it has one open, else
-- one that a dead member left, else the next of the group. The group's position moves on as the batch
-- is handed out, so the members work side by side.
--
-- A member is dead when it holds a batch and hasn't been heard of for dead_interval: by asking for the
-- batch, or by touch_subconsumer(). The batch is taken over under a new id, so that whoever comes back
-- from the dead can neither finish it nor fail its events.
--
-- min_lag, min_count and min_interval choose a larger batch as for a consumer that works alone. They
-- don't apply to a batch that exists.
--
-- Locks are taken in one order throughout: the member itself, its group, then without waiting another
-- member. A poll that finds nothing only reads.

create or replace function pgque.next_batch_custom(
    queue text, consumer text, subconsumer text,
    min_lag interval, min_count int4, min_interval interval, dead_interval interval default null,
    out batch_id bigint, out prev_tick_id bigint, out next_tick_id bigint
)
returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_group  record;
    v_member record;
    v_main   record;
    v_prev   pgque.tick;
    v_next   pgque.tick;
begin
    select g.* into v_group from pgque.find_subconsumer(queue, consumer, subconsumer) as g;
    if not found then
        if not exists (select from pgque.queue as q where q.queue_name = next_batch_custom.queue) then
            raise exception 'queue not found: %', queue
                using errcode = 'undefined_object';
        end if;
        raise exception 'not subscriber to queue: %/%.%', queue, consumer, subconsumer
            using errcode = 'undefined_object',
                  hint = 'Register it by pgque.register_subconsumer(), or use pgque.receive_coop().';
    end if;
    if not exists (
        select
        from pgque.subscription as s
        where s.sub_queue = v_group.queue_id
          and case s.sub_id
                  when v_group.member_id then s.sub_batch is not null
                  when v_group.main_id then exists (
                      select
                      from pgque.tick as t
                      where t.tick_queue = s.sub_queue and t.tick_id > s.sub_last_tick
                  )
                  else s.sub_parent = v_group.main_id
                      and s.sub_batch is not null
                      and s.sub_active < clock_timestamp() - dead_interval
              end
    ) then
        return;
    end if;

    select s.sub_batch, s.sub_last_tick, s.sub_next_tick
    into v_member
    from pgque.subscription as s
    where s.sub_id = v_group.member_id
    for update;
    if not found then
        raise exception 'not subscriber to queue: %/%.%', queue, consumer, subconsumer
            using errcode = 'undefined_object';
    end if;
    if v_member.sub_batch is not null then
        update pgque.subscription as s
        set sub_active = clock_timestamp()
        where s.sub_id = v_group.member_id;
        batch_id := v_member.sub_batch;
        prev_tick_id := v_member.sub_last_tick;
        next_tick_id := v_member.sub_next_tick;
        return;
    end if;

    select s.sub_queue, s.sub_last_tick
    into v_main
    from pgque.subscription as s
    where s.sub_id = v_group.main_id
    for update;

    select dead.dead_id, dead.dead_batch, dead.dead_name, dead.sub_last_tick, dead.sub_next_tick
    into v_member
    from (
        select s.sub_id as dead_id, s.sub_batch as dead_batch, c.co_name as dead_name,
               s.sub_last_tick, s.sub_next_tick
        from pgque.subscription as s
        join pgque.consumer as c on c.co_id = s.sub_consumer
        where s.sub_queue = v_group.queue_id
          and s.sub_parent = v_group.main_id
          and s.sub_id <> v_group.member_id
          and s.sub_batch is not null
          and s.sub_active < clock_timestamp() - dead_interval
        order by s.sub_active
        limit 1
        for update of s skip locked
    ) as dead;
    if found then
        update pgque.subscription as s
        set sub_batch = null, sub_last_tick = null, sub_next_tick = null
        where s.sub_id = v_member.dead_id;
        prev_tick_id := v_member.sub_last_tick;
        next_tick_id := v_member.sub_next_tick;
    else
        select t.*
        into v_prev
        from pgque.tick as t
        where t.tick_queue = v_main.sub_queue
          and t.tick_id = v_main.sub_last_tick;
        if not found then
            raise exception 'position of consumer % in queue % is lost: tick % does not exist',
                consumer, queue, v_main.sub_last_tick
                using errcode = 'data_corrupted',
                      hint = 'Unregister its members, then choose another position by '
                             'pgque.register_consumer_at().';
        end if;
        v_next := pgque.tick_after(v_prev, min_lag, min_count, min_interval);
        if v_next.tick_id is null then
            return;
        end if;
        update pgque.subscription as s
        set sub_last_tick = v_next.tick_id, sub_active = clock_timestamp()
        where s.sub_id = v_group.main_id;
        prev_tick_id := v_prev.tick_id;
        next_tick_id := v_next.tick_id;
    end if;

    batch_id := nextval('pgque.batch_id_seq');
    update pgque.subscription as s
    set sub_batch = next_batch_custom.batch_id,
        sub_last_tick = next_batch_custom.prev_tick_id,
        sub_next_tick = next_batch_custom.next_tick_id,
        sub_active = clock_timestamp()
    where s.sub_id = v_group.member_id;

    if v_member.dead_batch is not null then
        perform pgque.log_event('warning', 'consumer', 'batch taken over', jsonb_build_object(
            'queue', queue, 'consumer', consumer, 'subconsumer', subconsumer, 'batch_id', batch_id,
            'tick_id', next_tick_id, 'from_consumer', v_member.dead_name,
            'from_batch_id', v_member.dead_batch));
    end if;
end;
$$;

create or replace function pgque.next_batch(
    queue text, consumer text, subconsumer text, dead_interval interval default null
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select b.batch_id
        from pgque.next_batch_custom(
            queue, consumer, subconsumer, null, null, null, dead_interval) as b
    );
end;
$$;

revoke all on function pgque.next_batch_custom(
    text, text, text, interval, int4, interval, interval) from public;
revoke all on function pgque.next_batch(text, text, text, interval) from public;
grant execute on function pgque.next_batch_custom(
    text, text, text, interval, int4, interval, interval) to pgque_reader;
grant execute on function pgque.next_batch(text, text, text, interval) to pgque_reader;
