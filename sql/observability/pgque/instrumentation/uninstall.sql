-- Removes the instrumentation with all that it counted; the engine, its data and the pack stay.
begin;

-- "does not exist, skipping" is no news here.
set local client_min_messages = warning;

-- Consumers have to stand still for a moment. Why in this way: triggers.sql.
do $$
declare
    former_timeout constant text := current_setting('lock_timeout');
begin
    if not exists (
        select
        from pg_catalog.pg_trigger g
        join pg_catalog.pg_proc p on p.oid = g.tgfoid
        where p.pronamespace = pg_catalog.to_regnamespace('pgque') and p.proname like 'instrument\_%'
    ) then
        return;
    end if;
    for attempt in 1 .. 30 loop
        begin
            set local lock_timeout = '200ms';
            lock table pgque.subscription, pgque.retry_queue, pgque.dead_letter in access exclusive mode;
            exit;
        exception
            when lock_not_available then
                if attempt = 30 then
                    raise;
                end if;
                perform pg_catalog.pg_sleep(0.2);
        end;
    end loop;
    perform pg_catalog.set_config('lock_timeout', former_timeout, true);

    drop trigger if exists instrument_batch on pgque.subscription;
    drop trigger if exists instrument_retry on pgque.retry_queue;
    drop trigger if exists instrument_redelivery on pgque.retry_queue;
    drop trigger if exists instrument_dead_letter on pgque.dead_letter;
    drop trigger if exists instrument_dead_letter_removal on pgque.dead_letter;
end
$$;

drop function if exists pgque.instrument_batch();
drop function if exists pgque.instrument_retry();
drop function if exists pgque.instrument_redelivery();
drop function if exists pgque.instrument_dead_letter();
drop function if exists pgque.instrument_dead_letter_removal();
drop function if exists pgque.instrumented_metrics();
drop function if exists pgque.retry_history(int4, timestamptz, interval);
drop function if exists pgque.wait_history(int4, text, timestamptz);
drop function if exists pgque.instrumentation_rollup(int4);
drop function if exists pgque.instrumentation_ready();
drop function if exists pgque.instrumentation_batch(bigint);
drop function if exists pgque.instrumentation_bucket(text, bigint);
drop function if exists pgque.instrumentation_bounds(text);

drop table if exists pgque.instrumentation_log;
drop table if exists pgque.instrumentation_total;
drop table if exists pgque.instrumentation_history;
drop table if exists pgque.instrumentation_state;

commit;
