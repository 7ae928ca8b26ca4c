-- Attach a consumer to a queue. From then on it gets every event of the queue, and rotation waits
-- for it; so does the disk, until it consumes or is unregistered.
--
-- register_consumer() starts behind the last tick: events that no tick has covered yet are included.
-- register_consumer_at() starts behind any tick still kept, and moves a consumer that is already
-- there, giving up its open batch. Every tick still kept is a safe place to start: rotation deletes
-- a tick before it gives up the events behind it.

create or replace function pgque.register_consumer_at(
    queue_name text, consumer_name text, tick_pos bigint
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue    record;
    v_consumer int4;
    v_sub      record;
    v_tick     bigint;
begin
    if register_consumer_at.consumer_name is null or register_consumer_at.consumer_name = '' then
        raise exception 'consumer name must not be empty'
            using errcode = 'invalid_parameter_value';
    end if;

    select q.queue_id, q.queue_cur_table
    into v_queue
    from pgque.queue as q
    where q.queue_name = register_consumer_at.queue_name
    for key share;
    if not found then
        raise exception 'queue not found: %', register_consumer_at.queue_name
            using errcode = 'undefined_object';
    end if;

    -- Keeps rotation away until this is committed: it must not delete the tick that is about to
    -- become a position. A lock on the row of the queue would keep the ticker away as well.
    execute format('lock table only pgque.%I in row share mode', 'event_' || v_queue.queue_id);
    if current_setting('transaction_isolation') not like 'read %' then
        perform pgque.refuse_if_rotated(v_queue.queue_id, v_queue.queue_cur_table);
    end if;

    select t.tick_id
    into v_tick
    from pgque.tick as t
    where t.tick_queue = v_queue.queue_id
      and (register_consumer_at.tick_pos is null or t.tick_id = register_consumer_at.tick_pos)
    order by t.tick_id desc
    limit 1;
    if not found then
        raise exception 'tick not found: % in queue %',
            register_consumer_at.tick_pos, register_consumer_at.queue_name
            using errcode = 'undefined_object';
    end if;

    -- Writing the name over itself returns and locks the row whether or not it was there, so that
    -- nobody clears it away as unused, and two registrations of one consumer come one by one.
    insert into pgque.consumer as c (co_name)
    values (register_consumer_at.consumer_name)
    on conflict (co_name) do update set co_name = excluded.co_name
    returning c.co_id into v_consumer;

    select s.sub_role, s.sub_last_tick
    into v_sub
    from pgque.subscription as s
    where s.sub_queue = v_queue.queue_id
      and s.sub_consumer = v_consumer
    for update;
    if not found then
        insert into pgque.subscription (sub_queue, sub_consumer, sub_last_tick)
        values (v_queue.queue_id, v_consumer, v_tick);
        perform pgque.log_event('info', 'consumer', 'consumer registered', jsonb_build_object(
            'queue', register_consumer_at.queue_name, 'consumer', register_consumer_at.consumer_name,
            'tick_id', v_tick));
        return 1;
    end if;

    if register_consumer_at.tick_pos is not null then
        if v_sub.sub_role <> 'normal' then
            raise exception 'consumer % of queue % is cooperative and can not be moved',
                register_consumer_at.consumer_name, register_consumer_at.queue_name
                using errcode = 'object_not_in_prerequisite_state';
        end if;
        update pgque.subscription as s
        set sub_last_tick = v_tick, sub_batch = null, sub_next_tick = null, sub_active = now()
        where s.sub_queue = v_queue.queue_id
          and s.sub_consumer = v_consumer;
        perform pgque.log_event('info', 'consumer', 'consumer moved', jsonb_build_object(
            'queue', register_consumer_at.queue_name, 'consumer', register_consumer_at.consumer_name,
            'tick_id', v_tick, 'from_tick_id', v_sub.sub_last_tick));
    end if;
    return 0;
end;
$$;

create or replace function pgque.register_consumer(queue_name text, consumer_id text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.register_consumer_at(queue_name, consumer_id, null);
end;
$$;

revoke all on function pgque.register_consumer_at(text, text, bigint) from public;
revoke all on function pgque.register_consumer(text, text) from public;
grant execute on function pgque.register_consumer_at(text, text, bigint) to pgque_reader;
grant execute on function pgque.register_consumer(text, text) to pgque_reader;
