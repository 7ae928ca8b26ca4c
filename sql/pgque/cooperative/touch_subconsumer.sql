-- Tell that a member of a cooperative group is alive though its batch takes long, so that no other
-- member takes it over. Returns 1, or 0 for a member that isn't registered.

create or replace function pgque.touch_subconsumer(queue text, consumer text, subconsumer text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_count integer;
begin
    update pgque.subscription as s
    set sub_active = clock_timestamp()
    from pgque.find_subconsumer(queue, consumer, subconsumer) as g
    where s.sub_id = g.member_id;
    get diagnostics v_count = row_count;
    return v_count;
end;
$$;

revoke all on function pgque.touch_subconsumer(text, text, text) from public;
grant execute on function pgque.touch_subconsumer(text, text, text) to pgque_reader;
