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
    -- A member of a cooperative group has no position of its own; the group's moved on when the batch
    -- was handed out.
    update pgque.subscription as s
    set sub_last_tick = case when s.sub_role <> 'coop_member' then s.sub_next_tick end,
        sub_next_tick = null, sub_batch = null, sub_active = now()
    where s.sub_batch = finish_batch.batch_id
      and (s.sub_role <> 'coop_main' or not exists (
          select
          from pgque.subscription as m
          where m.sub_queue = s.sub_queue and m.sub_parent = s.sub_id
      ));
    if found then
        return 1;
    end if;

    if exists (select from pgque.subscription as s where s.sub_batch = finish_batch.batch_id) then
        raise exception 'batch % belongs to a cooperative group as a whole', finish_batch.batch_id
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Only the batches of its members can be finished.';
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
