-- Look at what a queue's consumers gave up on, newest first.

create or replace function pgque.dlq_inspect(queue text, limit_count int default 100)
returns setof pgque.dead_letter
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue_id int4;
begin
    select q.queue_id into v_queue_id from pgque.queue as q where q.queue_name = dlq_inspect.queue;
    if not found then
        raise exception 'queue not found: %', dlq_inspect.queue
            using errcode = 'undefined_object';
    end if;

    return query
    select d.*
    from pgque.dead_letter as d
    where d.dl_queue_id = v_queue_id
    order by d.dl_time desc, d.dl_id desc
    limit dlq_inspect.limit_count;
end;
$$;

revoke all on function pgque.dlq_inspect(text, int) from public;
grant execute on function pgque.dlq_inspect(text, int) to pgque_reader;
