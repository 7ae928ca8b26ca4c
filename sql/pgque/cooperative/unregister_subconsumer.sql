-- Take a member out of its cooperative group. Returns 1, or 0 for one that isn't there. What waits for
-- a retry stays with the group. Without its last member the group is an ordinary consumer again, at the
-- position that the group has reached.
--
-- A member with an open batch is refused, unless batch_handling is 1: then every event of the batch
-- counts as failed, as by nack(), and comes again to another member.

create or replace function pgque.unregister_subconsumer(
    queue text, consumer text, subconsumer text, batch_handling integer default 0
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_group  record;
    v_member record;
begin
    if batch_handling is null or batch_handling not in (0, 1) then
        raise exception 'batch_handling must be 0 or 1, not %', batch_handling
            using errcode = 'invalid_parameter_value';
    end if;

    select g.* into v_group from pgque.find_subconsumer(queue, consumer, subconsumer) as g;
    if not found then
        return 0;
    end if;
    select s.sub_consumer, s.sub_batch
    into v_member
    from pgque.subscription as s
    where s.sub_id = v_group.member_id
    for update;
    if not found then
        return 0;
    end if;

    if v_member.sub_batch is not null then
        if batch_handling = 0 then
            raise exception 'subconsumer %.% of queue % has an open batch: %',
                consumer, subconsumer, queue, v_member.sub_batch
                using errcode = 'object_in_use',
                      hint = 'Finish it, or give its events to the others by batch_handling => 1.';
        end if;
        perform pgque.fail_batch(v_member.sub_batch, 'subconsumer unregistered');
        perform pgque.finish_batch(v_member.sub_batch);
    end if;

    perform from pgque.subscription as s where s.sub_id = v_group.main_id for update;
    delete from pgque.subscription as s where s.sub_id = v_group.member_id;
    perform pgque.forget_consumer(v_member.sub_consumer);
    update pgque.subscription as s
    set sub_role = 'normal'
    where s.sub_id = v_group.main_id
      and not exists (
          select
          from pgque.subscription as m
          where m.sub_queue = s.sub_queue and m.sub_parent = s.sub_id
      );

    perform pgque.log_event('info', 'consumer', 'subconsumer unregistered', jsonb_build_object(
        'queue', queue, 'consumer', consumer, 'subconsumer', subconsumer,
        'batch_id', v_member.sub_batch));
    return 1;
end;
$$;

-- The everyday name.
create or replace function pgque.unsubscribe_subconsumer(
    queue text, consumer text, subconsumer text, batch_handling integer default 0
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.unregister_subconsumer(queue, consumer, subconsumer, batch_handling);
end;
$$;

revoke all on function pgque.unregister_subconsumer(text, text, text, integer) from public;
revoke all on function pgque.unsubscribe_subconsumer(text, text, text, integer) from public;
grant execute on function pgque.unregister_subconsumer(text, text, text, integer) to pgque_reader;
grant execute on function pgque.unsubscribe_subconsumer(text, text, text, integer) to pgque_reader;
