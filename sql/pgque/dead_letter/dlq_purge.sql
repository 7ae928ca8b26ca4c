-- Delete a queue's dead letters that are older than the given age, for good. Returns how many.

create or replace function pgque.dlq_purge(queue text, older_than interval default '30 days')
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue_id int4;
    v_count    integer;
begin
    select q.queue_id into v_queue_id from pgque.queue as q where q.queue_name = dlq_purge.queue;
    if not found then
        raise exception 'queue not found: %', dlq_purge.queue
            using errcode = 'undefined_object';
    end if;

    delete from pgque.dead_letter as d
    where d.dl_queue_id = v_queue_id
      and d.dl_time < now() - dlq_purge.older_than;
    get diagnostics v_count = row_count;
    return v_count;
end;
$$;

revoke all on function pgque.dlq_purge(text, interval) from public;
grant execute on function pgque.dlq_purge(text, interval) to pgque_admin;
