-- What a worker of a cooperative group calls to consume: the messages of its next batch, as receive()
-- for a consumer that works alone. The group and the worker are registered as needed. With
-- dead_interval it takes over what a worker left that hasn't been heard of for so long.
--
-- ack() moves past the whole batch, also past what `max_return` held back. Batches that hold nothing
-- to hand out are finished on the way, as in receive().

create or replace function pgque.receive_coop(
    queue text, consumer text, subconsumer text,
    max_return int default 100, dead_interval interval default null
)
returns setof pgque.message
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_batch bigint;
begin
    if max_return is null or max_return < 1 then
        raise exception 'max_return must be at least 1, not %', max_return
            using errcode = 'invalid_parameter_value';
    end if;
    if not exists (select from pgque.find_subconsumer(queue, consumer, subconsumer)) then
        perform pgque.register_subconsumer(queue, consumer, subconsumer);
    end if;

    loop
        v_batch := pgque.next_batch(queue, consumer, subconsumer, dead_interval);
        exit when v_batch is null;

        return query execute pgque.batch_message_sql(v_batch) using max_return;
        exit when found;

        perform pgque.finish_empty(v_batch);
    end loop;
end;
$$;

revoke all on function pgque.receive_coop(text, text, text, int, interval) from public;
grant execute on function pgque.receive_coop(text, text, text, int, interval) to pgque_reader;
