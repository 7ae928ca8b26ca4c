-- For tests of an application: receive the one message that there should be, see that it is of the
-- expected type, and acknowledge it. Fails, and leaves everything as it was, when there is none, when
-- the batch holds more, or when the type is another; NULL expects any type.

create or replace function pgque.test_consume(queue text, consumer text, expected_type text)
returns pgque.message
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_messages pgque.message[] := array(
        select r from pgque.receive(queue, consumer, 2147483647) as r order by r.msg_id
    );
begin
    if cardinality(v_messages) <> 1 then
        raise exception 'expected one message in queue % for consumer %, found %',
            queue, consumer, cardinality(v_messages)
            using errcode = 'assert_failure';
    end if;
    if expected_type is not null and v_messages[1].type is distinct from expected_type then
        raise exception 'expected a message of type % in queue %, found %',
            expected_type, queue, v_messages[1].type
            using errcode = 'assert_failure';
    end if;
    perform pgque.ack(v_messages[1].batch_id);
    return v_messages[1];
end;
$$;

revoke all on function pgque.test_consume(text, text, text) from public;
grant execute on function pgque.test_consume(text, text, text) to pgque_admin;
