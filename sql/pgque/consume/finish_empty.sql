-- Finish an open batch that turned out to hold nothing to hand out, and with it all empty ones that
-- follow. Internal to receive() and receive_coop().

-- The last tick up to which there is nothing to hand out to the owner of a position, from a given tick
-- on. An idle queue ticks once a minute, so a consumer coming back after a weekend finds thousands of
-- empty batches. Whether anything lies between its position and a tick can only turn from no to yes as
-- the tick gets later; so that tick is found by halving.
--
-- The current table is read together with each tick: a tick written after a rotation covers events
-- that are in the new table.
create or replace function pgque.last_empty_tick(queue_id int4, owner_id int4, from_tick bigint)
returns bigint
language plpgsql
stable
as $$
declare
    v_start pg_snapshot := (
        select t.tick_snapshot
        from pgque.tick as t
        where t.tick_queue = last_empty_tick.queue_id
          and t.tick_id = last_empty_tick.from_tick
    );
    v_tick  record;
    v_empty bigint := from_tick;    -- nothing up to this tick
    v_some  bigint;                 -- something up to this one
    v_found bool;
begin
    loop
        -- The last tick of all to begin with: after an idle time there is nothing at all.
        select t.tick_id, t.tick_snapshot, q.queue_cur_table, q.queue_event_ttl
        into v_tick
        from pgque.tick as t
        join pgque.queue as q on q.queue_id = t.tick_queue
        where t.tick_queue = last_empty_tick.queue_id
          and t.tick_id > v_empty
          and (v_some is null or t.tick_id <= (v_empty + v_some) / 2)
        order by t.tick_id desc
        limit 1;
        if not found then
            -- Ids have gaps: there may be ticks left in the upper half.
            select t.tick_id, t.tick_snapshot, q.queue_cur_table, q.queue_event_ttl
            into v_tick
            from pgque.tick as t
            join pgque.queue as q on q.queue_id = t.tick_queue
            where t.tick_queue = last_empty_tick.queue_id
              and t.tick_id > v_empty
              and t.tick_id < v_some
            order by t.tick_id
            limit 1;
            exit when not found;
        end if;

        execute 'select exists (' || pgque.skip_expired(
            pgque.event_range_sql(
                queue_id, v_tick.queue_cur_table, owner_id, v_start, v_tick.tick_snapshot),
            v_tick.queue_event_ttl) || ')'
        into v_found;
        if v_found then
            v_some := v_tick.tick_id;
        else
            v_empty := v_tick.tick_id;
            exit when v_some is null;
        end if;
    end loop;
    return v_empty;
end;
$$;

create or replace function pgque.finish_empty(batch_id bigint)
returns void
language plpgsql
as $$
declare
    v_batch record;
begin
    select coalesce(s.sub_parent, s.sub_id) as owner_id, s.sub_next_tick
    into v_batch
    from pgque.subscription as s
    where s.sub_batch = finish_empty.batch_id;
    perform pgque.finish_batch(batch_id);

    -- The position of a cooperative group may be further by now: then others have what follows.
    update pgque.subscription as s
    set sub_last_tick = pgque.last_empty_tick(s.sub_queue, s.sub_id, s.sub_last_tick)
    where s.sub_id = v_batch.owner_id
      and s.sub_last_tick = v_batch.sub_next_tick
      and s.sub_batch is null;
end;
$$;

revoke all on function pgque.last_empty_tick(int4, int4, bigint) from public;
revoke all on function pgque.finish_empty(bigint) from public;
grant execute on function pgque.last_empty_tick(int4, int4, bigint) to pgque_admin;
grant execute on function pgque.finish_empty(bigint) to pgque_admin;
