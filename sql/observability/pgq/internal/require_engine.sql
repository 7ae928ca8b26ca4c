-- The pack reads the engine's tables: without them, or with those of an engine that kept other columns,
-- there is nothing to observe, and a half-installed pack would only hide that.
do $$
declare
    missing text;
    owner_name name := (select pg_get_userbyid(c.relowner) from pg_class c where c.oid = to_regclass('pgq.queue'));
begin
    if owner_name is null then
        raise exception 'PgQ is not installed in database "%"', current_database()
            using errcode = 'invalid_schema_name',  -- where others are looked for, this one is passed over
                hint = 'Install it first: create extension pgq (Debian: postgresql-<version>-pgq3, pgqd)';
    end if;

    select format('pgq.%s.%s', n.table_name, n.column_name) into missing
    from (
        select t.table_name, column_name
        from (values
            ('queue', 'queue_id queue_name queue_ntables queue_cur_table queue_rotation_period queue_switch_step2 '
                'queue_switch_time queue_external_ticker queue_ticker_paused queue_ticker_max_lag '
                'queue_ticker_idle_period queue_event_seq'),
            ('tick', 'tick_queue tick_id tick_time tick_snapshot tick_event_seq'),
            ('consumer', 'co_id co_name'),
            ('subscription', 'sub_id sub_queue sub_consumer sub_last_tick sub_active sub_batch sub_next_tick'),
            ('event_template', 'ev_id ev_time ev_txid ev_owner ev_retry'),
            ('retry_queue', 'ev_queue ev_owner ev_retry_after')
        ) t(table_name, column_names)
        cross join lateral unnest(string_to_array(t.column_names, ' ')) column_name
    ) n
    left join pg_attribute a on a.attrelid = to_regclass('pgq.' || n.table_name)
        and a.attname = n.column_name and not a.attisdropped
    where a.attname is null
    limit 1;
    if found then
        raise exception 'PgQ in database "%" is too old for this pack: % is missing', current_database(), missing
            using errcode = 'object_not_in_prerequisite_state', hint = 'Upgrade it first: alter extension pgq update';
    end if;

    if not pg_has_role(owner_name, 'usage') then
        raise exception 'PgQ''s tables belong to %, who alone can let others read them', quote_ident(owner_name)
            using errcode = 'insufficient_privilege';
    end if;
end
$$;
