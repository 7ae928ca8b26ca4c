-- What pgque_monitor may read. It can't read a payload, receive, ack or change anything, which
-- pgque_reader can.
grant usage on schema pgque to pgque_monitor;
grant select on pgque.queue, pgque.tick, pgque.subscription, pgque.consumer to pgque_monitor;

-- Tables that hold payloads: only the columns that counting needs.
grant select (ev_queue, ev_owner, ev_retry_after) on pgque.retry_queue to pgque_monitor;
grant select (dl_queue_id, dl_consumer_id, dl_time) on pgque.dead_letter to pgque_monitor;

-- Each queue has an event sequence, read for the number of events sent; those of queues to come
-- get the grant by default privileges of the engine's owner, who creates them.
do $$
declare
    owner_name name := (select pg_catalog.pg_get_userbyid(nspowner)
                        from pg_catalog.pg_namespace where nspname = 'pgque');
begin
    execute format('alter default privileges for role %I in schema pgque grant select on sequences to pgque_monitor',
        owner_name);
    grant select on all sequences in schema pgque to pgque_monitor;
end
$$;
