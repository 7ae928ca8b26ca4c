-- How often ticker_loop() ticks, in milliseconds: a divisor of 1000, so that the beats of one second
-- join those of the next. Counts from the next second on. More ticks make shorter waits for consumers
-- and smaller batches; idle queues tick seldom whatever is set here. Returns what was set.

create or replace function pgque.set_tick_period_ms(ms integer)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if ms is null or ms not between 1 and 1000 or 1000 % ms <> 0 then
        raise exception 'tick period must be a divisor of 1000 from 1 to 1000 ms, not %', ms
            using errcode = 'invalid_parameter_value';
    end if;
    update pgque.config set tick_period_ms = ms;
    return ms;
end;
$$;

revoke all on function pgque.set_tick_period_ms(integer) from public;
grant execute on function pgque.set_tick_period_ms(integer) to pgque_admin;
