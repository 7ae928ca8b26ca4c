-- The two subscriptions that a member of a cooperative group consists of: the group's, which holds the
-- position, and its own, which holds its open batch. Internal. No row where either is missing.
--
-- A member is a consumer named <group>.<member>. Either part may hold dots, as host names do: whose member
-- it is, its row says, and a name that is taken in the queue is refused to the second who wants it.

create or replace function pgque.find_subconsumer(queue text, consumer text, subconsumer text)
returns table (queue_id int4, main_id int4, member_id int4)
language sql
stable
as $$
    select main.sub_queue, main.sub_id, member.sub_id
    from pgque.queue as q
    join pgque.subscription as main on main.sub_queue = q.queue_id
    join pgque.consumer as main_name on main_name.co_id = main.sub_consumer
    join pgque.subscription as member
        on member.sub_queue = main.sub_queue and member.sub_parent = main.sub_id
    join pgque.consumer as member_name on member_name.co_id = member.sub_consumer
    where q.queue_name = find_subconsumer.queue
      and main_name.co_name = find_subconsumer.consumer
      and member_name.co_name = find_subconsumer.consumer || '.' || find_subconsumer.subconsumer
$$;

revoke all on function pgque.find_subconsumer(text, text, text) from public;
grant execute on function pgque.find_subconsumer(text, text, text) to pgque_admin;
