-- For transactions that keep one snapshot throughout (repeatable read, serializable). Internal.
--
-- Such a transaction may still see the current table of before a rotation, and would write its event
-- where nobody looks any more. It is told to start again, as it is for any other row that changed
-- behind its snapshot.
--
-- How it can know: rotation empties the next table, and TRUNCATE gives a table a new file. The
-- snapshot still sees the old file number in pg_class, pg_relation_filenode() the true one. The lock
-- keeps it true until the end of the transaction.

create or replace function pgque.refuse_if_rotated(queue_id int4, seen_table int4)
returns void
language plpgsql
as $$
declare
    v_next text;
    v_seen oid;
begin
    v_next := 'event_' || queue_id || '_' || (seen_table + 1) % 3;
    execute pg_catalog.format('lock table pgque.%I in access share mode', v_next);

    select c.relfilenode
    into v_seen
    from pg_catalog.pg_class as c
    where c.oid = pg_catalog.format('pgque.%I', v_next)::regclass;

    if v_seen is distinct from
       pg_catalog.pg_relation_filenode(pg_catalog.format('pgque.%I', v_next)::regclass) then
        raise exception 'could not serialize access: the queue was rotated after this transaction began'
            using errcode = 'serialization_failure', hint = 'Run the transaction again.';
    end if;
end;
$$;

revoke all on function pgque.refuse_if_rotated(int4, int4) from public;
grant execute on function pgque.refuse_if_rotated(int4, int4) to pgque_admin;
