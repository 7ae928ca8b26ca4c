-- First half of a rotation: empty the oldest event table and make it the current one. Does nothing
-- and returns 0 until the rotation period is over and the slowest consumer allows it; maint() calls
-- it for every queue.
--
-- When may the oldest table go? The moment the current table moves on, the one before it becomes the
-- oldest, and readers stop looking into it. So every consumer must have got all that is in there:
-- nothing above the id that step 2 noted (see insert_event_raw), which a consumer is past once even
-- the oldest transaction running at its position is younger. The same is asked of the transactions
-- running now, for queues without consumers: what they commit later is owed to a consumer that
-- registers before.
--
-- Whatever is in the way, this never waits: the TRUNCATE needs a lock against which all readers and
-- writers of the table would queue up behind it. It will be called again.

create or replace function pgque.maint_rotate_tables_step1(queue_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue record;
    v_ticks bigint;
begin
    perform pgque.refuse_old_snapshot('pgque.maint_rotate_tables_step1()');

    select q.queue_id, q.queue_cur_table, q.queue_switch_step2,
           (q.queue_cur_table + 1) % 3 as next_table,
           q.queue_switch_time + q.queue_rotation_period as due_at
    into v_queue
    from pgque.queue as q
    where q.queue_name = maint_rotate_tables_step1.queue_name
    for no key update skip locked;
    if not found then
        if not exists (
            select from pgque.queue as q where q.queue_name = maint_rotate_tables_step1.queue_name
        ) then
            raise exception 'queue not found: %', queue_name
                using errcode = 'undefined_object';
        end if;
        return 0;
    end if;
    if v_queue.queue_switch_step2 is null or v_queue.due_at > clock_timestamp() then
        return 0;
    end if;

    -- The parent stands for the positions: with this lock nobody can take a new one (register_consumer
    -- waits), so those checked below are all there are.
    begin
        execute format('lock table only pgque.%I in exclusive mode nowait',
                       'event_' || v_queue.queue_id);
        execute format('lock table pgque.%I in access exclusive mode nowait',
                       'event_' || v_queue.queue_id || '_' || v_queue.next_table);
    exception
        when lock_not_available then
            return 0;
    end;

    if pg_snapshot_xmin(pg_current_snapshot()) <= v_queue.queue_switch_step2 then
        return 0;
    end if;
    -- A position whose tick is missing can't prove that it is past the table, so it holds it. Only an
    -- idle member of a cooperative group has no position: the group's main row speaks for it.
    if exists (
        select
        from pgque.subscription as s
        left join pgque.tick as t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
        where s.sub_queue = v_queue.queue_id
          and not (s.sub_role = 'coop_member' and s.sub_last_tick is null)
          and (t.tick_id is null
               or pg_snapshot_xmin(t.tick_snapshot) <= v_queue.queue_switch_step2)
    ) then
        return 0;
    end if;

    execute format('truncate table pgque.%I', 'event_' || v_queue.queue_id || '_' || v_queue.next_table);

    update pgque.queue as q
    set queue_cur_table = v_queue.next_table,
        queue_switch_time = clock_timestamp(),
        queue_switch_step1 = pg_current_xact_id(),
        queue_switch_step2 = null
    where q.queue_id = v_queue.queue_id;

    -- Ticks that no consumer needs go together with their events, so that every tick still there is
    -- a position from which nothing is missing.
    delete from pgque.tick as t
    where t.tick_queue = v_queue.queue_id
      and t.tick_id < (
          select min(needed.tick_id)
          from (
              select s.sub_last_tick
              from pgque.subscription as s
              where s.sub_queue = v_queue.queue_id
              union all
              select max(latest.tick_id)
              from pgque.tick as latest
              where latest.tick_queue = v_queue.queue_id
          ) as needed (tick_id)
      );
    get diagnostics v_ticks = row_count;

    perform pgque.log_event('info', 'rotation', 'rotation step 1 done', jsonb_build_object(
        'queue', maint_rotate_tables_step1.queue_name, 'from_table', v_queue.queue_cur_table,
        'to_table', v_queue.next_table, 'ticks_deleted', v_ticks));
    return 1;
end;
$$;

revoke all on function pgque.maint_rotate_tables_step1(text) from public;
grant execute on function pgque.maint_rotate_tables_step1(text) to pgque_admin;
