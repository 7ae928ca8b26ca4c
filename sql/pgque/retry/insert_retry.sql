-- Put one event aside until it is due again. Internal. The event keeps its id and time, counts one
-- more delivery, and from now on belongs to the subscription that failed on it: the other consumers
-- have had it. Returns 0 when it is waiting already.

create or replace function pgque.insert_retry(
    queue_id int4, sub_id int4, event pgque.event_template, retry_time timestamptz
)
returns integer
language plpgsql
as $$
begin
    insert into pgque.retry_queue (
        ev_retry_after, ev_queue, ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data,
        ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    values (
        retry_time, queue_id, event.ev_id, event.ev_time, event.ev_txid, sub_id,
        coalesce(event.ev_retry, 0) + 1, event.ev_type, event.ev_data,
        event.ev_extra1, event.ev_extra2, event.ev_extra3, event.ev_extra4)
    on conflict do nothing;
    return case when found then 1 else 0 end;
end;
$$;

revoke all on function pgque.insert_retry(int4, int4, pgque.event_template, timestamptz) from public;
grant execute on function pgque.insert_retry(int4, int4, pgque.event_template, timestamptz) to pgque_admin;
