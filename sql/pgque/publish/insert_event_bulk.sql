-- Write many events by one statement. Internal and closed to every role: producers call
-- send_batch(), whose contract is kept stable.
--
-- The same rule as in insert_event_raw(): the transaction id first, the look at the queue after it.

create or replace function pgque.insert_event_bulk(queue_name text, ev_type text, ev_data_list text[])
returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_txid  constant xid8 := pg_current_xact_id();
    v_queue record;
    v_ids   bigint[];
begin
    select q.queue_id, q.queue_cur_table, q.queue_disable_insert, q.queue_event_seq
    into v_queue
    from pgque.queue as q
    where q.queue_name = insert_event_bulk.queue_name;
    if not found then
        raise exception 'queue not found: %', insert_event_bulk.queue_name
            using errcode = 'undefined_object';
    end if;
    if v_queue.queue_disable_insert then
        raise exception 'Insert into queue disallowed'
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    -- An id and its place in the input travel in one row, whatever order the rows are made in.
    execute format(
        'with numbered as materialized ('
        '    select nextval($1) as id, d.data, d.place'
        '    from unnest($2) with ordinality as d (data, place)'
        '), written as ('
        '    insert into pgque.%I (ev_id, ev_txid, ev_type, ev_data)'
        '    select n.id, $3, $4, n.data from numbered as n order by n.place'
        ') '
        'select array_agg(n.id order by n.place) from numbered as n',
        'event_' || v_queue.queue_id || '_' || v_queue.queue_cur_table)
    into v_ids
    using v_queue.queue_event_seq::regclass, insert_event_bulk.ev_data_list, v_txid,
          insert_event_bulk.ev_type;

    if current_setting('transaction_isolation') not like 'read %' then
        perform pgque.refuse_if_rotated(v_queue.queue_id, v_queue.queue_cur_table);
    end if;
    return coalesce(v_ids, '{}');
end;
$$;

revoke all on function pgque.insert_event_bulk(text, text, text[]) from public;
revoke all on function pgque.insert_event_bulk(text, text, text[]) from pgque_admin;
