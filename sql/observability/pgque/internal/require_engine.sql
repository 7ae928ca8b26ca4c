-- The pack reads the engine's tables: without them there is nothing to observe, and a half-installed
-- pack would only hide that.
do $$
begin
    if to_regclass('pgque.queue') is null
        or to_regclass('pgque.tick') is null
        or to_regclass('pgque.subscription') is null
    then
        raise exception 'the PgQue engine is not installed in database "%"', current_database()
            using hint = 'Install it first: pgque-exporter sql install --with-queue, or \i sql/pgque/install.sql';
    end if;
end
$$;
