-- The heartbeat. Nothing reaches a consumer without it: call ticker() a few times per second, each
-- call in a transaction of its own. ticker(queue) does the same for one queue.
--
-- Both need read committed: a snapshot that stays the same throughout the transaction would be older
-- than ticks written meanwhile.

create or replace function pgque.ticker()
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_due   record;
    v_count bigint := 0::bigint;
begin
    perform pgque.refuse_old_snapshot('pgque.ticker()');
    for v_due in select d.* from pgque.due_ticks(null) as d loop
        -- One queue that can't tick must not stop the others.
        if v_due.ids_went_back then
            perform pgque.log_stale_snapshot(v_due.queue_id);
            raise warning 'queue % can not tick: its last tick is ahead of this server''s transaction ids',
                v_due.queue_name
                using hint = format('select pgque.ticker(%L) says more.', v_due.queue_name);
            continue;
        end if;
        if pgque.tick_queue(v_due.queue_id) is not null then
            v_count := v_count + 1;
        end if;
    end loop;
    return v_count;
end;
$$;

-- NULL when no tick was written: not due, another ticker at work, paused, or ticked from outside.
create or replace function pgque.ticker(queue text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue_id int4;
    v_due      record;
begin
    perform pgque.refuse_old_snapshot('pgque.ticker(queue)');

    select q.queue_id into v_queue_id from pgque.queue as q where q.queue_name = ticker.queue;
    if not found then
        raise exception 'queue not found: %', ticker.queue
            using errcode = 'undefined_object';
    end if;

    select d.* into v_due from pgque.due_ticks(v_queue_id) as d;
    if not found then
        return null;
    end if;
    if v_due.ids_went_back then
        perform pgque.log_stale_snapshot(v_queue_id);
        raise exception 'queue % can not tick: its last tick is ahead of this server''s transaction ids',
            ticker.queue
            using errcode = 'object_not_in_prerequisite_state',
                  detail = 'This happens when a dump is restored into another server: new events would '
                           'carry ids that the last tick takes for delivered, and would be lost.',
                  hint = 'Stop the server and move its next transaction id beyond the one in the last '
                         'tick (pg_resetwal), or drop the queue and create it again.';
    end if;
    return pgque.tick_queue(v_queue_id);
end;
$$;

-- For a queue with external_ticker: ticks that were numbered elsewhere. They must not go backwards,
-- or a batch would have its end before its start.
create or replace function pgque.ticker(
    queue text, tick_id bigint, tick_time timestamptz, event_seq bigint
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue record;
    v_last  record;
begin
    perform pgque.refuse_old_snapshot('pgque.ticker(queue, tick_id, tick_time, event_seq)');

    -- Waits for a ticker at work instead of leaving: this tick is asked for, not just looked for.
    select q.queue_id, q.queue_external_ticker, q.queue_tick_seq, q.queue_event_seq
    into v_queue
    from pgque.queue as q
    where q.queue_name = ticker.queue
    for no key update;
    if not found then
        raise exception 'queue not found: %', ticker.queue
            using errcode = 'undefined_object';
    end if;
    if not v_queue.queue_external_ticker then
        raise exception 'queue % does not have an external ticker', ticker.queue
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    select t.tick_id, t.tick_event_seq
    into v_last
    from pgque.tick as t
    where t.tick_queue = v_queue.queue_id
    order by t.tick_id desc
    limit 1;
    if ticker.tick_id is null or ticker.tick_id <= v_last.tick_id then
        raise exception 'tick id must increase: % after %', ticker.tick_id, v_last.tick_id
            using errcode = 'invalid_parameter_value';
    end if;
    if ticker.event_seq is null or ticker.event_seq < v_last.tick_event_seq then
        raise exception 'event sequence must not go backwards: % after %',
            ticker.event_seq, v_last.tick_event_seq
            using errcode = 'invalid_parameter_value';
    end if;
    -- Before PostgreSQL 17 whoever asks for its age would get an error.
    if not isfinite(ticker.tick_time) then
        raise exception 'tick time must be finite: %', ticker.tick_time
            using errcode = 'invalid_parameter_value';
    end if;

    insert into pgque.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq)
    values (v_queue.queue_id, ticker.tick_id, coalesce(ticker.tick_time, clock_timestamp()),
            pg_current_snapshot(), ticker.event_seq);

    -- So that the built-in ticker can take over later. Only this function and tick_queue() draw from
    -- the tick sequence, both under the lock. Events draw from theirs at any time: it is moved by
    -- drawing from it, so that no id is ever given out twice.
    perform setval(v_queue.queue_tick_seq::regclass, ticker.tick_id)
    where ticker.tick_id > coalesce(pg_sequence_last_value(v_queue.queue_tick_seq::regclass), 0);
    perform pgque.advance_sequence(v_queue.queue_event_seq::regclass, ticker.event_seq);

    perform pg_notify('pgque_' || ticker.queue, ticker.tick_id::text);
    return ticker.tick_id;
end;
$$;

revoke all on function pgque.ticker() from public;
revoke all on function pgque.ticker(text) from public;
revoke all on function pgque.ticker(text, bigint, timestamptz, bigint) from public;
grant execute on function pgque.ticker() to pgque_admin;
grant execute on function pgque.ticker(text) to pgque_admin;
grant execute on function pgque.ticker(text, bigint, timestamptz, bigint) to pgque_admin;
