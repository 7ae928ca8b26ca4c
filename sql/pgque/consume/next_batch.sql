-- Open the next batch of a consumer: what became visible between the tick it has reached and a later
-- one. As long as it isn't finished, the same batch is handed out again; so a consumer that crashed
-- finds its work where it left it.
--
-- next_batch_custom() takes not the very next tick but the first that satisfies every condition
-- given: old enough (min_lag), enough events (min_count), enough time covered (min_interval).
--
-- A poll that finds nothing is by far the most frequent call. So the first look only reads: no lock,
-- no transaction id, nothing to flush.

create or replace function pgque.next_batch_custom(
    queue_name text, consumer_name text,
    min_lag interval, min_count int4, min_interval interval,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint
)
returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sub  record;
    v_prev pgque.tick;
    v_next pgque.tick;
begin
    select s.sub_id,
           s.sub_batch is not null or exists (
               select
               from pgque.tick as t
               where t.tick_queue = s.sub_queue and t.tick_id > s.sub_last_tick
           ) as has_work,
           s.sub_role = 'coop_member' or (s.sub_role = 'coop_main' and exists (
               select
               from pgque.subscription as m
               where m.sub_queue = s.sub_queue and m.sub_parent = s.sub_id
           )) as in_group
    into v_sub
    from pgque.queue as q
    join pgque.subscription as s on s.sub_queue = q.queue_id
    join pgque.consumer as c on c.co_id = s.sub_consumer
    where q.queue_name = next_batch_custom.queue_name
      and c.co_name = next_batch_custom.consumer_name;
    if not found then
        if not exists (select from pgque.queue as q where q.queue_name = next_batch_custom.queue_name) then
            raise exception 'queue not found: %', next_batch_custom.queue_name
                using errcode = 'undefined_object';
        end if;
        raise exception 'not subscriber to queue: %/%',
            next_batch_custom.queue_name, next_batch_custom.consumer_name
            using errcode = 'undefined_object';
    end if;
    if v_sub.in_group then
        raise exception 'consumer % of queue % belongs to a cooperative group',
            next_batch_custom.consumer_name, next_batch_custom.queue_name
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Its batches are handed out per member: use pgque.receive_coop() or the '
                         'next_batch() form with a subconsumer.';
    end if;
    if not v_sub.has_work then
        return;
    end if;

    -- From here on alone: of two workers with one name, the second waits and finds what the first left.
    select s.sub_id, s.sub_queue, s.sub_last_tick, s.sub_batch, s.sub_next_tick
    into v_sub
    from pgque.subscription as s
    where s.sub_id = v_sub.sub_id
    for update;
    if not found then
        raise exception 'not subscriber to queue: %/%',
            next_batch_custom.queue_name, next_batch_custom.consumer_name
            using errcode = 'undefined_object';
    end if;

    select t.*
    into v_prev
    from pgque.tick as t
    where t.tick_queue = v_sub.sub_queue
      and t.tick_id = v_sub.sub_last_tick;
    if not found then
        raise exception 'position of consumer % in queue % is lost: tick % does not exist',
            next_batch_custom.consumer_name, next_batch_custom.queue_name, v_sub.sub_last_tick
            using errcode = 'data_corrupted',
                  hint = 'Choose another position by pgque.register_consumer_at().';
    end if;

    if v_sub.sub_batch is not null then
        select t.*
        into v_next
        from pgque.tick as t
        where t.tick_queue = v_sub.sub_queue
          and t.tick_id = v_sub.sub_next_tick;
    else
        v_next := pgque.tick_after(
            v_prev, next_batch_custom.min_lag, next_batch_custom.min_count,
            next_batch_custom.min_interval);
        if v_next.tick_id is null then
            return;
        end if;
        v_sub.sub_batch := nextval('pgque.batch_id_seq');
        update pgque.subscription as s
        set sub_batch = v_sub.sub_batch, sub_next_tick = v_next.tick_id, sub_active = now()
        where s.sub_id = v_sub.sub_id;
    end if;

    batch_id := v_sub.sub_batch;
    cur_tick_id := v_next.tick_id;
    prev_tick_id := v_sub.sub_last_tick;
    cur_tick_time := v_next.tick_time;
    prev_tick_time := v_prev.tick_time;
    cur_tick_event_seq := v_next.tick_event_seq;
    prev_tick_event_seq := v_prev.tick_event_seq;
end;
$$;

create or replace function pgque.next_batch_info(
    queue_name text, consumer_name text,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint
)
returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    select b.*
    into batch_id, cur_tick_id, prev_tick_id, cur_tick_time, prev_tick_time,
         cur_tick_event_seq, prev_tick_event_seq
    from pgque.next_batch_custom(
        next_batch_info.queue_name, next_batch_info.consumer_name, null, null, null) as b;
end;
$$;

create or replace function pgque.next_batch(queue_name text, consumer_name text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select b.batch_id
        from pgque.next_batch_custom(
            next_batch.queue_name, next_batch.consumer_name, null, null, null) as b
    );
end;
$$;

revoke all on function pgque.next_batch_custom(text, text, interval, int4, interval) from public;
revoke all on function pgque.next_batch_info(text, text) from public;
revoke all on function pgque.next_batch(text, text) from public;
grant execute on function pgque.next_batch_custom(text, text, interval, int4, interval) to pgque_reader;
grant execute on function pgque.next_batch_info(text, text) to pgque_reader;
grant execute on function pgque.next_batch(text, text) to pgque_reader;
