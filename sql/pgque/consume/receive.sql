-- What an application calls to consume: the messages of the next batch. Work on them, nack() those
-- that failed, then ack() the batch.
--
-- ack() moves past the whole batch, also past what `max_return` held back. Choose it at least as
-- large as a batch may get.
--
-- Ticks of an idle queue make batches without events. Those are finished here on the way: the caller
-- would get no row, so no batch id, and could never finish them (docs/decisions/0001).

create or replace function pgque.receive(queue text, consumer text, max_return int default 100)
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

    loop
        v_batch := pgque.next_batch(queue, consumer);
        exit when v_batch is null;

        return query execute pgque.batch_message_sql(v_batch) using max_return;
        exit when found;

        perform pgque.finish_empty(v_batch);
    end loop;
end;
$$;

revoke all on function pgque.receive(text, text, int) from public;
grant execute on function pgque.receive(text, text, int) to pgque_reader;
