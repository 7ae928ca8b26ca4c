-- Close a batch: the consumer moves on to its end, events it has not looked at included. A batch that
-- isn't open gives 0 and a warning rather than an error, as an acknowledgement repeated after a lost
-- connection is no fault.

create or replace function pgque.finish_batch(batch_id bigint)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update pgque.subscription as s
    set sub_last_tick = s.sub_next_tick, sub_next_tick = null, sub_batch = null, sub_active = now()
    where s.sub_batch = finish_batch.batch_id
      and s.sub_role = 'normal';
    if found then
        return 1;
    end if;

    if exists (select from pgque.subscription as s where s.sub_batch = finish_batch.batch_id) then
        raise exception 'batch % belongs to a cooperative group', finish_batch.batch_id
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    raise warning 'batch not found: %', finish_batch.batch_id;
    return 0;
end;
$$;

-- The everyday name.
create or replace function pgque.ack(batch_id bigint)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.finish_batch(batch_id);
end;
$$;

revoke all on function pgque.finish_batch(bigint) from public;
revoke all on function pgque.ack(bigint) from public;
grant execute on function pgque.finish_batch(bigint) to pgque_reader;
grant execute on function pgque.ack(bigint) to pgque_reader;
