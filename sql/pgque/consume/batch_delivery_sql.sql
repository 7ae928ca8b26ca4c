-- What of an open batch is handed out, as the text of a query: all but the events that have outlived
-- the queue's event_ttl. Internal. Without event_ttl it is the query for the whole batch.
--
-- Reading is the only place where age counts: an event handed out before may still be retried or
-- given up, and isn't handed out again once it is too old.

create or replace function pgque.skip_expired(event_sql text, event_ttl interval)
returns text
language sql
immutable
as $$
    select case
        when event_ttl is null then event_sql
        else pg_catalog.format(
            'select b.* from (%s) as b where b.ev_time > pg_catalog.now() - %L::interval',
            event_sql, event_ttl)
    end
$$;

create or replace function pgque.batch_delivery_sql(batch_id bigint)
returns text
language plpgsql
stable
as $$
declare
    v_events constant text := pgque.batch_event_sql(batch_id);
begin
    return (
        select pgque.skip_expired(v_events, q.queue_event_ttl)
        from pgque.subscription as s
        join pgque.queue as q on q.queue_id = s.sub_queue
        where s.sub_batch = batch_delivery_sql.batch_id
    );
end;
$$;

-- The same as messages, the first $1 of them.
create or replace function pgque.batch_message_sql(batch_id bigint)
returns text
language sql
stable
as $$
    select pg_catalog.format(
        'select b.ev_id, %s::bigint, b.ev_type, b.ev_data, b.ev_retry, b.ev_time, '
        'b.ev_extra1, b.ev_extra2, b.ev_extra3, b.ev_extra4 '
        'from (%s) as b order by b.ev_id limit $1',
        batch_id, pgque.batch_delivery_sql(batch_id))
$$;

revoke all on function pgque.skip_expired(text, interval) from public;
revoke all on function pgque.batch_delivery_sql(bigint) from public;
revoke all on function pgque.batch_message_sql(bigint) from public;
grant execute on function pgque.skip_expired(text, interval) to pgque_admin;
grant execute on function pgque.batch_delivery_sql(bigint) to pgque_admin;
grant execute on function pgque.batch_message_sql(bigint) to pgque_admin;
