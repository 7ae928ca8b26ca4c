-- The heartbeat for a scheduler that starts something once a second at most: ticks for one second,
-- every pgque.config.tick_period_ms, each time in a transaction of its own. start() schedules it.
--
-- A procedure, because only that may commit; and such a one can't fix its search path, so every name
-- in it is qualified. Operators have one type on both sides, all of them int4 or float8: of such ones
-- pg_catalog has an exact match, and is searched first. For float8 * int4 it has none, and whoever may
-- create an operator in the caller's search path could run code with the caller's rights. It must be
-- called outside of a transaction.
--
-- Beats have fixed places within the second. One whose time is over, because the tick before it took
-- long, is left out, so that this ends in time for the next call.

create or replace procedure pgque.ticker_loop()
language plpgsql
as $$
declare
    v_start   constant timestamptz := pg_catalog.clock_timestamp();
    v_period  constant int4 := (select c.tick_period_ms from pgque.config as c);
    v_next_ms int4;
    v_now_ms  float8;
begin
    loop
        perform pgque.ticker();
        commit;

        v_now_ms := extract(epoch from pg_catalog.clock_timestamp() - v_start)::float8 * 1000::float8;
        v_next_ms := (pg_catalog.floor(v_now_ms)::int4 / v_period + 1) * v_period;
        exit when v_next_ms >= 1000;
        perform pg_catalog.pg_sleep((v_next_ms::float8 - v_now_ms) / 1000::float8);
    end loop;
end;
$$;

revoke all on procedure pgque.ticker_loop() from public;
grant execute on procedure pgque.ticker_loop() to pgque_admin;
