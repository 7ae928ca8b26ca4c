-- For tests of an application: fail unless every consumer of a queue has got all there is and finished
-- it, retries included. Only what is committed counts, whether a tick has covered it or not; delayed
-- messages and dead letters don't.

create or replace function pgque.assert_empty(queue text)
returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue_id int4;
    v_sub      record;
    v_pending  bigint;
begin
    select q.queue_id into v_queue_id from pgque.queue as q where q.queue_name = assert_empty.queue;
    if not found then
        raise exception 'queue not found: %', queue
            using errcode = 'undefined_object';
    end if;

    for v_sub in
        -- What a member of a cooperative group holds ends where its batch ends; a position that works
        -- alone is still at the beginning of its open batch.
        select c.co_name, q.queue_cur_table, q.queue_event_ttl,
               coalesce(s.sub_parent, s.sub_id) as owner_id,
               start_tick.tick_snapshot as start_snapshot,
               coalesce(end_tick.tick_snapshot, pg_current_snapshot()) as end_snapshot,
               (select count(*) from pgque.retry_queue as r where r.ev_owner = s.sub_id) as retries
        from pgque.subscription as s
        join pgque.queue as q on q.queue_id = s.sub_queue
        join pgque.consumer as c on c.co_id = s.sub_consumer
        left join pgque.tick as start_tick
            on start_tick.tick_queue = s.sub_queue and start_tick.tick_id = s.sub_last_tick
        left join pgque.tick as end_tick
            on s.sub_role = 'coop_member'
            and end_tick.tick_queue = s.sub_queue and end_tick.tick_id = s.sub_next_tick
        where s.sub_queue = v_queue_id
          and not (s.sub_role = 'coop_member' and s.sub_batch is null)
        order by c.co_name
    loop
        if v_sub.start_snapshot is null then
            raise exception 'position of consumer % in queue % is lost', v_sub.co_name, queue
                using errcode = 'data_corrupted';
        end if;
        execute 'select count(*) from (' || pgque.skip_expired(
            pgque.event_range_sql(
                v_queue_id, v_sub.queue_cur_table, v_sub.owner_id,
                v_sub.start_snapshot, v_sub.end_snapshot),
            v_sub.queue_event_ttl) || ') as e'
        into v_pending;
        if v_pending + v_sub.retries > 0 then
            raise exception 'queue % is not empty: consumer % has % events pending and % waiting for a retry',
                queue, v_sub.co_name, v_pending, v_sub.retries
                using errcode = 'assert_failure';
        end if;
    end loop;
    return true;
end;
$$;

create or replace function pgque.assert_dlq_empty(queue text)
returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue_id int4;
    v_count    bigint;
begin
    select q.queue_id into v_queue_id from pgque.queue as q where q.queue_name = assert_dlq_empty.queue;
    if not found then
        raise exception 'queue not found: %', queue
            using errcode = 'undefined_object';
    end if;
    select count(*) into v_count from pgque.dead_letter as d where d.dl_queue_id = v_queue_id;
    if v_count > 0 then
        raise exception 'queue % has % dead letters', queue, v_count
            using errcode = 'assert_failure';
    end if;
    return true;
end;
$$;

revoke all on function pgque.assert_empty(text) from public;
revoke all on function pgque.assert_dlq_empty(text) from public;
grant execute on function pgque.assert_empty(text) to pgque_admin;
grant execute on function pgque.assert_dlq_empty(text) to pgque_admin;
