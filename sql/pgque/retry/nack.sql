-- Tell that one message failed: it comes again after `retry_after`, or becomes a dead letter once it
-- has been retried as often as the queue allows. Acknowledge the batch as usual afterwards.
--
-- Only the message's id is taken from the caller; everything else, the retry count above all, is read
-- from the stored event.

create or replace function pgque.nack(
    batch_id bigint, msg pgque.message,
    retry_after interval default '60 seconds', reason text default null
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sub   record;
    v_event pgque.event_template;
begin
    select coalesce(s.sub_parent, s.sub_id) as owner_id, s.sub_queue,
           coalesce(q.queue_max_retries, 5) as max_retries
    into v_sub
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    where s.sub_batch = nack.batch_id
    for key share of s;
    if not found then
        raise exception 'batch not found: %', batch_id
            using errcode = 'undefined_object';
    end if;

    v_event := pgque.batch_event(batch_id, msg.msg_id);
    if v_event.ev_id is null then
        raise exception 'msg_id % not found in batch %', msg.msg_id, batch_id
            using errcode = 'undefined_object';
    end if;

    if coalesce(v_event.ev_retry, 0) >= v_sub.max_retries then
        perform pgque.event_dead(
            batch_id, v_event.ev_id, coalesce(reason, 'max retries exceeded'),
            v_event.ev_time, v_event.ev_txid, v_event.ev_retry, v_event.ev_type, v_event.ev_data,
            v_event.ev_extra1, v_event.ev_extra2, v_event.ev_extra3, v_event.ev_extra4);
    else
        perform pgque.insert_retry(
            v_sub.sub_queue, v_sub.owner_id, v_event,
            clock_timestamp() + coalesce(retry_after, interval '60 seconds'));
    end if;
    return 1;
end;
$$;

revoke all on function pgque.nack(bigint, pgque.message, interval, text) from public;
grant execute on function pgque.nack(bigint, pgque.message, interval, text) to pgque_reader;
