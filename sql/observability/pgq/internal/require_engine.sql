-- The pack reads the engine's tables: without them, or with those of an engine that kept other columns,
-- there is nothing to observe, and a half-installed pack would only hide that.
do $$
declare
    lacking text;
    owner_name name := (select pg_catalog.pg_get_userbyid(relowner)
                        from pg_catalog.pg_class where oid = to_regclass('pgq.queue'));
begin
    if owner_name is null then
        raise exception 'PgQ is not installed in database "%"', current_database()
            using hint = 'Install it first: create extension pgq (Debian: postgresql-<version>-pgq3, pgqd)';
    end if;

    select string_agg(format('pgq.%s.%s', needed.table_name, needed.column_name), ', ')
    into lacking
    from (values
        ('queue', 'queue_ticker_paused'), ('queue', 'queue_external_ticker'), ('queue', 'queue_switch_step2'),
        ('tick', 'tick_event_seq'), ('subscription', 'sub_next_tick'),
        ('event_template', 'ev_owner'), ('retry_queue', 'ev_queue')
    ) needed(table_name, column_name)
    where not exists (
        select
        from pg_catalog.pg_attribute a
        where a.attrelid = to_regclass('pgq.' || needed.table_name)
            and a.attname = needed.column_name and not a.attisdropped
    );
    if lacking is not null then
        raise exception 'this PgQ is too old for the pack: it has no %', lacking
            using errcode = 'feature_not_supported', hint = 'Update it first: alter extension pgq update';
    end if;

    if not pg_has_role(owner_name, 'usage') then
        raise exception 'PgQ''s tables belong to %, who alone can let others read them', quote_ident(owner_name)
            using errcode = 'insufficient_privilege';
    end if;
end
$$;
