-- Have one event of an open batch delivered again later, to this consumer only. Finish the batch as
-- usual afterwards.

create or replace function pgque.event_retry(batch_id bigint, event_id bigint, retry_time timestamptz)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sub   record;
    v_event pgque.event_template;
begin
    -- Locked, so that the batch isn't finished and the consumer not unregistered until the retry is
    -- committed: a retry nobody owns would wait for ever.
    select coalesce(s.sub_parent, s.sub_id) as owner_id, s.sub_queue
    into v_sub
    from pgque.subscription as s
    where s.sub_batch = event_retry.batch_id
    for key share;
    if not found then
        raise exception 'batch not found: %', event_retry.batch_id
            using errcode = 'undefined_object';
    end if;

    v_event := pgque.batch_event(batch_id, event_id);
    if v_event.ev_id is null then
        raise exception 'event % not found in batch %', event_id, batch_id
            using errcode = 'undefined_object';
    end if;
    return pgque.insert_retry(v_sub.sub_queue, v_sub.owner_id, v_event, retry_time);
end;
$$;

create or replace function pgque.event_retry(batch_id bigint, event_id bigint, retry_seconds integer)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.event_retry(
        batch_id, event_id, clock_timestamp() + make_interval(secs => retry_seconds));
end;
$$;

revoke all on function pgque.event_retry(bigint, bigint, timestamptz) from public;
revoke all on function pgque.event_retry(bigint, bigint, integer) from public;
grant execute on function pgque.event_retry(bigint, bigint, timestamptz) to pgque_reader;
grant execute on function pgque.event_retry(bigint, bigint, integer) to pgque_reader;
