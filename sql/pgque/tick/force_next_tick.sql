-- Make the next call of the ticker write a tick for this queue, whatever its limits say. For tests
-- and demonstrations: it doesn't tick by itself, and it leaves a gap in the event ids.
-- Returns the id of the last tick there is.

create or replace function pgque.force_next_tick(queue text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue record;
begin
    select q.queue_id, q.queue_external_ticker, q.queue_ticker_paused, q.queue_ticker_max_count,
           q.queue_event_seq
    into v_queue
    from pgque.queue as q
    where q.queue_name = force_next_tick.queue;
    if not found then
        raise exception 'queue not found: %', force_next_tick.queue
            using errcode = 'undefined_object';
    end if;
    if v_queue.queue_external_ticker or v_queue.queue_ticker_paused then
        raise exception 'queue % is % and gets no tick from the ticker', force_next_tick.queue,
            case when v_queue.queue_ticker_paused then 'paused' else 'ticked from outside' end
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    perform pgque.advance_sequence(
        v_queue.queue_event_seq::regclass,
        coalesce(pg_sequence_last_value(v_queue.queue_event_seq::regclass), 0)
            + v_queue.queue_ticker_max_count::bigint * 2 + 1000);

    return (
        select t.tick_id
        from pgque.tick as t
        where t.tick_queue = v_queue.queue_id
        order by t.tick_id desc
        limit 1
    );
end;
$$;

-- The older name of the same thing.
create or replace function pgque.force_tick(queue text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.force_next_tick(queue);
end;
$$;

revoke all on function pgque.force_next_tick(text) from public;
revoke all on function pgque.force_tick(text) from public;
grant execute on function pgque.force_next_tick(text) to pgque_admin;
grant execute on function pgque.force_tick(text) to pgque_admin;
