-- One event of an open batch, as it is stored; all NULL when the batch doesn't hold it. Internal:
-- what a consumer sends back about an event is not to be trusted, so nack() looks it up here.

create or replace function pgque.batch_event(batch_id bigint, event_id bigint)
returns pgque.event_template
language plpgsql
stable
as $$
declare
    v_event pgque.event_template;
begin
    execute 'select b.* from (' || pgque.batch_event_sql(batch_id) || ') as b where b.ev_id = $1 limit 1'
    into v_event
    using event_id;
    return v_event;
end;
$$;

revoke all on function pgque.batch_event(bigint, bigint) from public;
grant execute on function pgque.batch_event(bigint, bigint) to pgque_admin;
