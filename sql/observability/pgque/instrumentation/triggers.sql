-- What is there already stays as it is, so that installing again disturbs nobody. A trigger whose
-- definition changes gets another name.
--
-- Otherwise consumers have to stand still for a moment. They use the three tables in any order, so
-- whoever holds one of them and waits for the next may end in a deadlock with them. Hence all or
-- nothing, each wait shorter than any deadlock_timeout, and a pause in which consumers move on.
do $$
declare
    former_timeout constant text := current_setting('lock_timeout');
    missing record;
    locked boolean := false;
begin
    for missing in
        select t.name, t.definition
        from (values
            ('instrument_batch', 'pgque.subscription'::regclass,
                'before update of sub_batch on pgque.subscription for each row '
                'when (old.sub_batch is not null and new.sub_batch is null)'),
            ('instrument_retry', 'pgque.retry_queue',
                'after insert on pgque.retry_queue referencing new table as added for each statement'),
            ('instrument_redelivery', 'pgque.retry_queue',
                'after delete on pgque.retry_queue referencing old table as deleted for each statement'),
            ('instrument_dead_letter', 'pgque.dead_letter',
                'after insert on pgque.dead_letter for each row'),
            ('instrument_dead_letter_removal', 'pgque.dead_letter',
                'after delete on pgque.dead_letter referencing old table as deleted for each statement')
        ) t(name, on_table, definition)
        where not exists (
            select from pg_catalog.pg_trigger g where g.tgrelid = t.on_table and g.tgname = t.name)
    loop
        for attempt in 1 .. 30 loop
            exit when locked;
            begin
                set local lock_timeout = '200ms';
                lock table pgque.subscription, pgque.retry_queue, pgque.dead_letter
                    in share row exclusive mode;
                locked := true;
            exception
                when lock_not_available then
                    if attempt = 30 then
                        raise;
                    end if;
                    perform pg_catalog.pg_sleep(0.2);
            end;
        end loop;
        execute pg_catalog.format(
            'create trigger %1$I %2$s execute function pgque.%1$I()', missing.name, missing.definition);
    end loop;
    perform pg_catalog.set_config('lock_timeout', former_timeout, true);
end
$$;
