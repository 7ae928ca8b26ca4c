-- Detach a consumer from a queue: its position, its open batch and the events waiting for its retry
-- are gone, its dead letters stay. Returns how many subscriptions were removed; none is no error, so
-- that a clean-up may run twice.

create or replace function pgque.unregister_consumer(queue_name text, consumer_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sub     record;
    v_retries bigint;
begin
    select s.sub_id, s.sub_queue, s.sub_consumer, s.sub_role, s.sub_last_tick
    into v_sub
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    join pgque.consumer as c on c.co_id = s.sub_consumer
    where q.queue_name = unregister_consumer.queue_name
      and c.co_name = unregister_consumer.consumer_name
    for update of s;
    if not found then
        return 0;
    end if;
    if v_sub.sub_role = 'coop_member'
       or exists (
           select
           from pgque.subscription as m
           where m.sub_queue = v_sub.sub_queue and m.sub_parent = v_sub.sub_id
       ) then
        raise exception 'consumer % of queue % belongs to a cooperative group',
            unregister_consumer.consumer_name, unregister_consumer.queue_name
            using errcode = 'object_in_use',
                  hint = 'Unregister the members by pgque.unregister_subconsumer() first.';
    end if;

    delete from pgque.retry_queue as r where r.ev_owner = v_sub.sub_id;
    get diagnostics v_retries = row_count;
    delete from pgque.subscription as s where s.sub_id = v_sub.sub_id;
    perform pgque.forget_consumer(v_sub.sub_consumer);
    perform pgque.log_event('info', 'consumer', 'consumer unregistered', jsonb_build_object(
        'queue', unregister_consumer.queue_name, 'consumer', unregister_consumer.consumer_name,
        'tick_id', v_sub.sub_last_tick, 'retries_deleted', v_retries));
    return 1;
end;
$$;

revoke all on function pgque.unregister_consumer(text, text) from public;
grant execute on function pgque.unregister_consumer(text, text) to pgque_reader;
