-- Log that a queue can't tick because its last tick knows transaction ids that this server hasn't given
-- out yet. Internal to the ticker. It repeats with every attempt: nothing could be written down about
-- having told it before.

create or replace function pgque.log_stale_snapshot(queue_id int4)
returns void
language sql
as $$
    select pgque.log_event(
        'error', 'ticker', 'transaction ids went backwards',
        pg_catalog.jsonb_build_object(
            'queue', q.queue_name,
            'tick_id', t.tick_id,
            'tick_xmax', pg_catalog.pg_snapshot_xmax(t.tick_snapshot)::text,
            'server_xmax', pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text))
    from pgque.queue as q
    cross join lateral (
        select t.tick_id, t.tick_snapshot
        from pgque.tick as t
        where t.tick_queue = q.queue_id
        order by t.tick_id desc
        limit 1
    ) as t
    where q.queue_id = log_stale_snapshot.queue_id
$$;

revoke all on function pgque.log_stale_snapshot(int4) from public;
grant execute on function pgque.log_stale_snapshot(int4) to pgque_admin;
