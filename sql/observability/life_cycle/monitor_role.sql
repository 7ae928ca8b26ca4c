-- pgque_monitor may run the contract of every pack on this server, and nothing else.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'pgque_monitor') then
        create role pgque_monitor nologin;
    end if;
exception
    when duplicate_object or unique_violation then
        null;  -- roles belong to the whole server: another database's install was quicker
end
$$;
