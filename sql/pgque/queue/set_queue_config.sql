-- Change one setting of a queue; NULL goes back to the default. The names are the columns of
-- pgque.queue without `queue_`. Only the ones below may be set, and only to values that make sense:
-- a ticker with a count of 0 would tick on every call, a negative rotation period would never rest. And to
-- intervals that lead from now to a time that PostgreSQL knows, back and forth: with another one, maint()
-- would fail for all queues.

create or replace function pgque.set_queue_config(queue text, param text, value text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_type text;
begin
    v_type := case set_queue_config.param
        when 'ticker_max_count'   then 'int4'
        when 'max_retries'        then 'int4'
        when 'ticker_max_lag'     then 'interval'
        when 'ticker_idle_period' then 'interval'
        when 'rotation_period'    then 'interval'
        when 'event_ttl'          then 'interval'
        when 'ticker_paused'      then 'bool'
        when 'external_ticker'    then 'bool'
    end;
    if v_type is null then
        raise exception 'unknown queue setting: %', set_queue_config.param
            using errcode = 'invalid_parameter_value',
                  hint = 'One of: ticker_max_count, ticker_max_lag, ticker_idle_period, '
                         'ticker_paused, rotation_period, external_ticker, max_retries, event_ttl.';
    end if;

    if set_queue_config.value is null then
        execute format('update pgque.queue set %I = default where queue_name = $1',
                       'queue_' || set_queue_config.param)
        using set_queue_config.queue;
    else
        if (v_type = 'interval' and set_queue_config.value::interval <= interval '0')
           or (set_queue_config.param = 'ticker_max_count' and set_queue_config.value::int4 <= 0) then
            raise exception '% must be positive: %', set_queue_config.param, set_queue_config.value
                using errcode = 'invalid_parameter_value';
        end if;
        if v_type = 'interval' then
            perform now() + set_queue_config.value::interval, now() - set_queue_config.value::interval;
        end if;
        if set_queue_config.param = 'max_retries' and set_queue_config.value::int4 < 0 then
            raise exception 'max_retries must not be negative: %', set_queue_config.value
                using errcode = 'invalid_parameter_value';
        end if;
        execute format('update pgque.queue set %I = $2::%I where queue_name = $1',
                       'queue_' || set_queue_config.param, v_type)
        using set_queue_config.queue, set_queue_config.value;
    end if;

    -- EXECUTE leaves FOUND alone.
    if not exists (select from pgque.queue as q where q.queue_name = set_queue_config.queue) then
        raise exception 'queue not found: %', set_queue_config.queue
            using errcode = 'undefined_object';
    end if;
    return 1;
end;
$$;

revoke all on function pgque.set_queue_config(text, text, text) from public;
grant execute on function pgque.set_queue_config(text, text, text) to pgque_admin;
