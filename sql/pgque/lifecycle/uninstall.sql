-- Remove the engine with everything in it, its jobs in pg_cron first. Only its owner may: it runs with
-- the rights of the caller, and no role is granted it. The roles stay, as they belong to the whole
-- server.

create or replace function pgque.uninstall()
returns void
language plpgsql
as $$
begin
    perform pgque.stop();
    drop schema pgque cascade;
end;
$$;

revoke all on function pgque.uninstall() from public;
revoke all on function pgque.uninstall() from pgque_admin;
