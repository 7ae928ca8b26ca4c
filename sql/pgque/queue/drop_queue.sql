-- Remove a queue with everything in it, its dead letters included. Refuses while consumers are
-- attached unless forced, because those would silently stop getting anything.

create or replace function pgque.drop_queue(queue text, force bool)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id           int4;
    v_sub          record;
    v_consumers    int4 := 0;
    v_retries      bigint;
    v_dead_letters bigint;
begin
    -- Consumers at work first, and let them finish: one of them may still have to refer to the row of
    -- the queue that is locked next.
    if drop_queue.force then
        perform
        from pgque.subscription as s
        join pgque.queue as q on q.queue_id = s.sub_queue
        where q.queue_name = drop_queue.queue
        -- Members of a cooperative group before the group, as its members do it.
        order by s.sub_role desc, s.sub_id
        for update of s;
    end if;

    select q.queue_id
    into v_id
    from pgque.queue as q
    where q.queue_name = drop_queue.queue
    for update;
    if not found then
        raise exception 'queue not found: %', drop_queue.queue
            using errcode = 'undefined_object';
    end if;

    -- The lock above holds off new subscriptions, so what is seen here is all there will be.
    if not coalesce(drop_queue.force, false)
       and exists (select from pgque.subscription as s where s.sub_queue = v_id) then
        raise exception 'cannot drop queue %: consumers are still attached', drop_queue.queue
            using errcode = 'object_in_use',
                  hint = 'Unsubscribe them first, or call pgque.drop_queue(queue, true).';
    end if;

    delete from pgque.retry_queue as r where r.ev_queue = v_id;
    get diagnostics v_retries = row_count;
    delete from pgque.delayed_events as e where e.de_queue_name = drop_queue.queue;
    delete from pgque.tick as t where t.tick_queue = v_id;
    delete from pgque.dead_letter as d where d.dl_queue_id = v_id;
    get diagnostics v_dead_letters = row_count;
    for v_sub in
        delete from pgque.subscription as s
        using pgque.consumer as c
        where s.sub_queue = v_id and c.co_id = s.sub_consumer
        returning s.sub_consumer, s.sub_last_tick, c.co_name
    loop
        perform pgque.forget_consumer(v_sub.sub_consumer);
        perform pgque.log_event('info', 'consumer', 'consumer unregistered', jsonb_build_object(
            'queue', drop_queue.queue, 'consumer', v_sub.co_name, 'tick_id', v_sub.sub_last_tick,
            'reason', 'queue dropped'));
        v_consumers := v_consumers + 1;
    end loop;
    delete from pgque.queue as q where q.queue_id = v_id;

    execute format('drop table pgque.%I cascade', 'event_' || v_id);
    execute format('drop sequence pgque.%I, pgque.%I',
                   'event_' || v_id || '_id_seq',
                   'event_' || v_id || '_tick_seq');

    perform pgque.log_event('info', 'queue', 'queue dropped', jsonb_build_object(
        'queue', drop_queue.queue, 'queue_id', v_id, 'consumers', v_consumers,
        'retries_deleted', v_retries, 'dead_letters_deleted', v_dead_letters));
    return 1;
end;
$$;

create or replace function pgque.drop_queue(queue text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.drop_queue(queue, false);
end;
$$;

revoke all on function pgque.drop_queue(text, bool) from public;
revoke all on function pgque.drop_queue(text) from public;
grant execute on function pgque.drop_queue(text, bool) to pgque_admin;
grant execute on function pgque.drop_queue(text) to pgque_admin;
