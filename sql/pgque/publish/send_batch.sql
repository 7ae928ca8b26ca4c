-- Publish many messages at once, all or none. The ids come back in the order of the input; only the
-- position ties an id to its payload, as ids need not rise within one batch.
--
-- An empty array is no work and touches nothing. A NULL array is a mistake of the caller. A NULL
-- among the elements is a message without a payload.

create or replace function pgque.send_batch(queue_name text, type_name text, payloads text[])
returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if payloads is null then
        raise exception 'payloads must not be null'
            using errcode = 'null_value_not_allowed';
    end if;
    if cardinality(payloads) = 0 then
        return array[]::bigint[];
    end if;
    return pgque.insert_event_bulk(queue_name, type_name, payloads);
end;
$$;

create or replace function pgque.send_batch(queue_name text, type_name text, payloads jsonb[])
returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The cast goes element by element and leaves a NULL array NULL.
    return pgque.send_batch(queue_name, type_name, payloads::text[]);
end;
$$;

create or replace function pgque.send_batch(queue_name text, payloads text[])
returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.send_batch(queue_name, 'default', payloads);
end;
$$;

create or replace function pgque.send_batch(queue_name text, payloads jsonb[])
returns bigint[]
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.send_batch(queue_name, 'default', payloads::text[]);
end;
$$;

revoke all on function pgque.send_batch(text, text, text[]) from public;
revoke all on function pgque.send_batch(text, text, jsonb[]) from public;
revoke all on function pgque.send_batch(text, text[]) from public;
revoke all on function pgque.send_batch(text, jsonb[]) from public;
grant execute on function pgque.send_batch(text, text, text[]) to pgque_writer;
grant execute on function pgque.send_batch(text, text, jsonb[]) to pgque_writer;
grant execute on function pgque.send_batch(text, text[]) to pgque_writer;
grant execute on function pgque.send_batch(text, jsonb[]) to pgque_writer;
