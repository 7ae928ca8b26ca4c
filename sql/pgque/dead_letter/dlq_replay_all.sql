-- Replay all dead letters of a queue, oldest first. One that can't be replayed stays where it is and
-- doesn't stop the others; the result says how many, and what was wrong with the first.

create or replace function pgque.dlq_replay_all(
    queue text, out replayed bigint, out failed bigint, out first_error text
)
returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue_id int4;
    v_dead_id  bigint;
begin
    replayed := 0;
    failed := 0;

    select q.queue_id into v_queue_id from pgque.queue as q where q.queue_name = dlq_replay_all.queue;
    if not found then
        raise exception 'queue not found: %', dlq_replay_all.queue
            using errcode = 'undefined_object';
    end if;

    -- Locked beforehand, leaving out what another replay has in hand: that isn't a failure.
    for v_dead_id in
        select d.dl_id
        from pgque.dead_letter as d
        where d.dl_queue_id = v_queue_id
        order by d.dl_id
        for update skip locked
    loop
        begin
            perform pgque.dlq_replay(v_dead_id);
            replayed := replayed + 1;
        exception
            when others then
                failed := failed + 1;
                first_error := coalesce(first_error, format('dead letter %s: %s', v_dead_id, sqlerrm));
                raise warning 'dead letter % was not replayed: %', v_dead_id, sqlerrm;
        end;
    end loop;
end;
$$;

revoke all on function pgque.dlq_replay_all(text) from public;
grant execute on function pgque.dlq_replay_all(text) to pgque_writer;
