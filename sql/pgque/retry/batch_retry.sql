-- Have all events of an open batch delivered again later; for a consumer that finds out halfway that
-- it can't do its work at all. Returns how many were put aside; events that have outlived the queue's
-- event_ttl are not among them.

-- Internal: those that were retried less than max_retries times, or all without that.
create or replace function pgque.retry_batch_events(
    batch_id bigint, retry_time timestamptz, max_retries int4
)
returns integer
language plpgsql
as $$
declare
    v_sub   record;
    v_count integer;
begin
    select coalesce(s.sub_parent, s.sub_id) as owner_id, s.sub_queue
    into v_sub
    from pgque.subscription as s
    where s.sub_batch = retry_batch_events.batch_id
    for key share;
    if not found then
        raise exception 'batch not found: %', retry_batch_events.batch_id
            using errcode = 'undefined_object';
    end if;

    execute
        'insert into pgque.retry_queue ('
        'ev_retry_after, ev_queue, ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data, '
        'ev_extra1, ev_extra2, ev_extra3, ev_extra4) '
        'select $1, $2, b.ev_id, b.ev_time, b.ev_txid, $3, coalesce(b.ev_retry, 0) + 1, '
        'b.ev_type, b.ev_data, b.ev_extra1, b.ev_extra2, b.ev_extra3, b.ev_extra4 '
        'from (' || pgque.batch_delivery_sql(batch_id) || ') as b '
        'where $4 is null or coalesce(b.ev_retry, 0) < $4 on conflict do nothing'
    using retry_time, v_sub.sub_queue, v_sub.owner_id, max_retries;
    get diagnostics v_count = row_count;
    return v_count;
end;
$$;

create or replace function pgque.batch_retry(batch_id bigint, retry_seconds integer)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.retry_batch_events(
        batch_id, clock_timestamp() + make_interval(secs => retry_seconds), null);
end;
$$;

revoke all on function pgque.retry_batch_events(bigint, timestamptz, int4) from public;
revoke all on function pgque.batch_retry(bigint, integer) from public;
grant execute on function pgque.retry_batch_events(bigint, timestamptz, int4) to pgque_admin;
grant execute on function pgque.batch_retry(bigint, integer) to pgque_admin;
