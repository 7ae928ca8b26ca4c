-- Make a queue. Creating one that exists changes nothing, so an application may do it at every start.
--
-- Three event tables per queue: one is written, the one before it may still be read, and the third
-- is the one that rotation may empty. A writer or a reader never meets the TRUNCATE that way.

create or replace function pgque.create_queue(queue text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id     int4;
    v_parent text;
    v_child  text;
begin
    if create_queue.queue is null or create_queue.queue = '' then
        raise exception 'queue name must not be empty'
            using errcode = 'invalid_parameter_value';
    end if;
    if octet_length(create_queue.queue) > 57 then
        raise exception 'queue name is too long: % bytes, at most 57', octet_length(create_queue.queue)
            using errcode = 'name_too_long',
                  hint = 'Its notification channel pgque_<queue> must fit into 63 bytes.';
    end if;

    -- Taken from the sequence first: the names of the queue's own objects are made of it.
    v_id := nextval('pgque.queue_queue_id_seq')::int4;
    v_parent := 'event_' || v_id;

    insert into pgque.queue (queue_id, queue_name, queue_data_pfx, queue_event_seq, queue_tick_seq)
    values (
        v_id, create_queue.queue,
        format('pgque.%I', v_parent),
        format('pgque.%I', v_parent || '_id_seq'),
        format('pgque.%I', v_parent || '_tick_seq')
    )
    on conflict do nothing;
    if not found then
        return 0;
    end if;

    execute format('create sequence pgque.%I', v_parent || '_id_seq');
    execute format('create sequence pgque.%I', v_parent || '_tick_seq');
    execute format('revoke all on sequence pgque.%I, pgque.%I from public',
                   v_parent || '_id_seq', v_parent || '_tick_seq');
    execute format('grant all on sequence pgque.%I, pgque.%I to pgque_admin',
                   v_parent || '_id_seq', v_parent || '_tick_seq');

    execute format('create table pgque.%I () inherits (pgque.event_template)', v_parent);
    perform pgque.grant_event_table(v_parent);

    for i in 0 .. 2 loop
        v_child := v_parent || '_' || i;
        -- Rows are only ever added, and leave by TRUNCATE: there is nothing to vacuum, and a vacuum
        -- at work would keep rotation from getting its lock.
        execute format(
            'create table pgque.%I () inherits (pgque.%I) '
            'with (autovacuum_enabled = off, toast.autovacuum_enabled = off)', v_child, v_parent);
        execute format('create index %I on pgque.%I (ev_txid)', v_child || '_txid_idx', v_child);
        perform pgque.grant_event_table(v_child);
    end loop;

    -- The first tick: consumers start from a tick, and this one comes before every event.
    insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq)
    values (v_id, nextval(format('pgque.%I', v_parent || '_tick_seq')::regclass), clock_timestamp(), 0);

    perform pgque.log_event('info', 'queue', 'queue created', jsonb_build_object(
        'queue', create_queue.queue, 'queue_id', v_id));
    return 1;
end;
$$;

revoke all on function pgque.create_queue(text) from public;
grant execute on function pgque.create_queue(text) to pgque_admin;
