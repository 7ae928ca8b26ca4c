-- Removes the engine with every queue, event, position and dead letter in it, and its jobs in pg_cron.
-- The roles stay: they belong to the whole server and may be in use by an engine in another database.

do $$
begin
    -- An engine of an earlier version has no jobs, or no such function.
    if to_regprocedure('pgque.stop()') is not null then
        perform pgque.stop();
    end if;
end;
$$;

drop schema if exists pgque cascade;
