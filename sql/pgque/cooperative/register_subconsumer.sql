-- Let several workers share one consumer: each registers as a member of the group under its own name
-- and gets batches that no other member gets. The group has the position; it is made along with its
-- first member. Returns 1, or 0 for a member that is there already.
--
-- A consumer that exists and works alone is turned into a group only when asked to, and not in the
-- middle of a batch: whoever runs it would be locked out.

create or replace function pgque.register_subconsumer(
    queue text, consumer text, subconsumer text, convert_normal boolean default false
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_main   record;
    v_member int4;
    v_new    bool;
begin
    if coalesce(consumer, '') = '' or coalesce(subconsumer, '') = '' then
        raise exception 'names of a cooperative group and its members must not be empty'
            using errcode = 'invalid_parameter_value';
    end if;

    -- The name first: of two registrations of one member the second waits here, holding nothing else.
    insert into pgque.consumer as c (co_name)
    values (consumer || '.' || subconsumer)
    on conflict (co_name) do update set co_name = excluded.co_name
    returning c.co_id into v_member;
    if exists (select from pgque.find_subconsumer(queue, consumer, subconsumer)) then
        return 0;
    end if;

    v_new := pgque.register_consumer(queue, consumer) = 1;
    select s.sub_id, s.sub_queue, s.sub_role, s.sub_batch,
           not exists (
               select
               from pgque.subscription as m
               where m.sub_queue = s.sub_queue and m.sub_parent = s.sub_id
           ) as is_empty
    into v_main
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    join pgque.consumer as c on c.co_id = s.sub_consumer
    where q.queue_name = register_subconsumer.queue
      and c.co_name = register_subconsumer.consumer
    for update of s;

    if v_main.sub_role = 'normal' and not v_new and not coalesce(convert_normal, false) then
        raise exception 'consumer % of queue % exists and is not cooperative', consumer, queue
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Turn it into a group by pgque.register_subconsumer(..., convert_normal => true), '
                         'or choose another name.';
    end if;
    if v_main.is_empty and v_main.sub_batch is not null then
        raise exception 'consumer % of queue % has an open batch and can not become cooperative',
            consumer, queue
            using errcode = 'object_in_use',
                  hint = format('Finish it first: select pgque.ack(%s);', v_main.sub_batch);
    end if;
    update pgque.subscription as s
    set sub_role = 'coop_main'
    where s.sub_id = v_main.sub_id
      and s.sub_role = 'normal';

    insert into pgque.subscription (sub_queue, sub_consumer, sub_role, sub_parent)
    values (v_main.sub_queue, v_member, 'coop_member', v_main.sub_id)
    on conflict do nothing;
    if not found then
        raise exception 'consumer %.% of queue % exists and is not a member of this group',
            consumer, subconsumer, queue
            using errcode = 'duplicate_object';
    end if;
    perform pgque.log_event('info', 'consumer', 'subconsumer registered', jsonb_build_object(
        'queue', queue, 'consumer', consumer, 'subconsumer', subconsumer));
    return 1;
end;
$$;

-- The everyday name.
create or replace function pgque.subscribe_subconsumer(
    queue text, consumer text, subconsumer text, convert_normal boolean default false
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.register_subconsumer(queue, consumer, subconsumer, convert_normal);
end;
$$;

revoke all on function pgque.register_subconsumer(text, text, text, boolean) from public;
revoke all on function pgque.subscribe_subconsumer(text, text, text, boolean) from public;
grant execute on function pgque.register_subconsumer(text, text, text, boolean) to pgque_reader;
grant execute on function pgque.subscribe_subconsumer(text, text, text, boolean) to pgque_reader;
