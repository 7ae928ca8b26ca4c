-- What receive() hands out and nack() takes back: one event, together with the batch it came in.

do $$
begin
    if pg_catalog.to_regtype('pgque.message') is null then
        create type pgque.message as (
            msg_id      bigint,
            batch_id    bigint,
            type        text,
            payload     text,
            retry_count int4,
            created_at  timestamptz,
            extra1      text,
            extra2      text,
            extra3      text,
            extra4      text
        );
    end if;
end;
$$;

revoke all on type pgque.message from public;
grant usage on type pgque.message to pgque_reader, pgque_writer, pgque_admin;
