-- Clear away a consumer's name once nothing refers to it. Internal. Dead letters do: they must stay
-- readable after the consumer is gone, so its row stays with them.
--
-- A row somebody has locked is about to be used again and is left alone.

create or replace function pgque.forget_consumer(consumer_id int4)
returns void
language plpgsql
as $$
begin
    perform
    from pgque.consumer as c
    where c.co_id = forget_consumer.consumer_id
    for update skip locked;
    if found then
        delete from pgque.consumer as c
        where c.co_id = forget_consumer.consumer_id
          and not exists (select from pgque.subscription as s where s.sub_consumer = c.co_id)
          and not exists (select from pgque.dead_letter as d where d.dl_consumer_id = c.co_id);
    end if;
end;
$$;

revoke all on function pgque.forget_consumer(int4) from public;
grant execute on function pgque.forget_consumer(int4) to pgque_admin;
