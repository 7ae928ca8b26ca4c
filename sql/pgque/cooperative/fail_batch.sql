-- Treat every event of an open batch as if nack() had been called for it: a retry after a minute, or a
-- dead letter for those that were retried as often as the queue allows. Internal to
-- unregister_subconsumer(). Events that have outlived the queue's event_ttl are left out, as nobody would
-- have been given them.

create or replace function pgque.fail_batch(batch_id bigint, reason text)
returns void
language plpgsql
as $$
declare
    v_batch record;
    v_event pgque.event_template;
begin
    select coalesce(s.sub_parent, s.sub_id) as owner_id, s.sub_queue,
           coalesce(q.queue_max_retries, 5) as max_retries
    into v_batch
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    where s.sub_batch = fail_batch.batch_id;

    -- The dead first: those below are then the rest.
    for v_event in execute
        'select b.* from (' || pgque.batch_delivery_sql(batch_id) || ') as b '
        'where coalesce(b.ev_retry, 0) >= $1 order by b.ev_id'
        using v_batch.max_retries
    loop
        perform pgque.event_dead(
            batch_id, v_event.ev_id, reason, v_event.ev_time, v_event.ev_txid, v_event.ev_retry,
            v_event.ev_type, v_event.ev_data, v_event.ev_extra1, v_event.ev_extra2,
            v_event.ev_extra3, v_event.ev_extra4);
    end loop;

    perform pgque.retry_batch_events(
        batch_id, pg_catalog.clock_timestamp() + interval '60 seconds', v_batch.max_retries);
end;
$$;

revoke all on function pgque.fail_batch(bigint, text) from public;
grant execute on function pgque.fail_batch(bigint, text) to pgque_admin;
