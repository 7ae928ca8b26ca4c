-- The pack reads the engine's tables: without them there is nothing to observe, and a half-installed
-- pack would only hide that.
do $$
declare
    missing text;
begin
    if to_regnamespace('pgque') is null or to_regclass('pgque.queue') is null then
        raise exception 'the PgQue engine is not installed in database "%"', current_database()
            using errcode = 'invalid_schema_name',  -- where others are looked for, this one is passed over
                hint = 'Install it first: pgque-exporter sql install --with-queue, or \i sql/pgque/install.sql';
    end if;

    select format('pgque.%s', n.table_name) || coalesce('.' || n.column_name, '') into missing
    from (
        select t.table_name, column_name
        from (values
            ('queue', 'queue_id queue_name queue_ntables queue_cur_table queue_rotation_period queue_switch_step2 '
                'queue_switch_time queue_external_ticker queue_ticker_paused queue_ticker_max_lag '
                'queue_ticker_idle_period queue_event_seq'),
            ('tick', 'tick_queue tick_id tick_time tick_snapshot tick_event_seq'),
            ('consumer', 'co_id co_name'),
            ('subscription', 'sub_id sub_queue sub_consumer sub_last_tick sub_active sub_batch sub_next_tick '
                'sub_role sub_parent'),
            ('event_template', 'ev_id ev_time ev_txid ev_owner ev_retry'),
            ('retry_queue', 'ev_queue ev_owner ev_retry_after'),
            ('dead_letter', 'dl_id dl_queue_id dl_consumer_id dl_time dl_reason ev_type'),
            ('config', 'ticker_job_id maint_job_id')
        ) t(table_name, column_names)
        cross join lateral unnest(string_to_array(t.column_names, ' ')) column_name
    ) n
    left join pg_attribute a on a.attrelid = to_regclass(format('pgque.%I', n.table_name))
        and a.attname = n.column_name and not a.attisdropped
    where a.attname is null
    limit 1;
    if found then
        raise exception 'the PgQue engine in database "%" is too old for this pack: % is missing',
            current_database(), missing
            using errcode = 'object_not_in_prerequisite_state',
                hint = 'Upgrade it first: pgque-exporter sql install --with-queue, or \i sql/pgque/install.sql';
    end if;
end
$$;
