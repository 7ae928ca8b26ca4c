-- Finish an open batch that turned out to hold no events, and with it all empty ones that follow.
-- Internal to receive().
--
-- An idle queue ticks once a minute, so a consumer coming back after a weekend finds thousands of
-- empty batches. Whether anything lies between its position and a tick can only turn from no to yes
-- as the tick gets later; so the last tick up to which there is nothing is found by halving, and the
-- position moves once.
--
-- The current table is read together with each tick: a tick written after a rotation covers events
-- that are in the new table.

create or replace function pgque.finish_empty(batch_id bigint)
returns void
language plpgsql
as $$
declare
    v_batch record;
    v_tick  record;
    v_empty bigint;     -- nothing up to this tick
    v_some  bigint;     -- something up to this one
    v_found bool;
begin
    select s.sub_id, s.sub_queue, s.sub_next_tick, t.tick_snapshot
    into v_batch
    from pgque.subscription as s
    join pgque.tick as t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
    where s.sub_batch = finish_empty.batch_id;

    v_empty := v_batch.sub_next_tick;
    loop
        -- The last tick of all to begin with: after an idle time there is nothing at all.
        select t.tick_id, t.tick_snapshot, q.queue_cur_table
        into v_tick
        from pgque.tick as t
        join pgque.queue as q on q.queue_id = t.tick_queue
        where t.tick_queue = v_batch.sub_queue
          and t.tick_id > v_empty
          and (v_some is null or t.tick_id <= (v_empty + v_some) / 2)
        order by t.tick_id desc
        limit 1;
        if not found then
            -- Ids have gaps: there may be ticks left in the upper half.
            select t.tick_id, t.tick_snapshot, q.queue_cur_table
            into v_tick
            from pgque.tick as t
            join pgque.queue as q on q.queue_id = t.tick_queue
            where t.tick_queue = v_batch.sub_queue
              and t.tick_id > v_empty
              and t.tick_id < v_some
            order by t.tick_id
            limit 1;
            exit when not found;
        end if;

        execute 'select exists (' || pgque.event_range_sql(
            v_batch.sub_queue, v_tick.queue_cur_table, v_batch.sub_id,
            v_batch.tick_snapshot, v_tick.tick_snapshot) || ')'
        into v_found;
        if v_found then
            v_some := v_tick.tick_id;
        else
            v_empty := v_tick.tick_id;
            exit when v_some is null;
        end if;
    end loop;

    update pgque.subscription as s
    set sub_last_tick = v_empty, sub_next_tick = null, sub_batch = null, sub_active = now()
    where s.sub_batch = finish_empty.batch_id;
end;
$$;

revoke all on function pgque.finish_empty(bigint) from public;
grant execute on function pgque.finish_empty(bigint) to pgque_admin;
