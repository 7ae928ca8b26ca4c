-- The triggers of the instrumentation would count on, and nobody could read what.
do $$
begin
    if to_regprocedure('pgque.instrumented_metrics()') is not null then
        raise exception 'the instrumentation of PgQue is still installed in database "%"', current_database()
            using hint = 'Remove it first: pgque-exporter sql uninstall --engine pgque --instrument, or '
                '\i sql/observability/pgque/instrumentation/uninstall.sql';
    end if;
end
$$;
