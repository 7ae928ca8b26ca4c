-- Write a structured event into the server log: one message `pgque.<component>.<level> <message>` with
-- its attributes as JSON in DETAIL. The engine tells by it what it did to queues, consumers, dead letters
-- and event tables; an application may add events of its own.
--
-- It never fails, because an event must not undo the operation it tells of: what can't be used is
-- replaced, and the caller gets a warning. And the log knows no transaction: the line stays when the
-- operation is rolled back.
--
-- An event carries names, ids and counts, never a payload. With each message of level LOG the server
-- also logs the client's statement, which may hold one. It is told not to, where the owner of the engine
-- has the right to tell it: a superuser has.

create or replace function pgque.log_event(
    i_level text, i_component text, i_message text, i_attrs jsonb default '{}'
)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_level     text := lower(i_level);
    v_component text := lower(i_component);
    -- One line, and not a long one.
    v_message   text := left(regexp_replace(coalesce(i_message, ''), '[[:cntrl:]]+', ' ', 'g'), 1000);
    v_attrs     jsonb := coalesce(i_attrs, '{}');
    v_may_hide  bool := (select r.rolsuper from pg_roles as r where r.rolname = current_user);
    v_hide_from text := current_setting('log_min_error_statement');
begin
    if v_level is null or v_level not in ('debug', 'info', 'warning', 'error') then
        raise warning 'log_event: the level must be debug, info, warning or error, not %', left(i_level, 60);
        v_level := 'info';
    end if;
    if v_component is null or v_component !~ '^[a-z][a-z0-9_]{0,59}$' then
        raise warning 'log_event: the component must be a name of at most 60 letters, digits and _, not %',
            left(i_component, 60);
        v_component := 'unknown';
    end if;
    if jsonb_typeof(v_attrs) <> 'object' then
        raise warning 'log_event: the attributes must be a JSON object, not a JSON %', jsonb_typeof(v_attrs);
        v_attrs := jsonb_build_object('attributes', v_attrs);
    end if;
    if octet_length(v_attrs::text) > 8192 then
        raise warning 'log_event: the attributes are left out, they are larger than 8 kB';
        v_attrs := jsonb_build_object('attributes_left_out_bytes', octet_length(v_attrs::text));
    end if;

    if v_may_hide then
        perform set_config('log_min_error_statement', 'panic', true);
    end if;
    raise log 'pgque.%.% %', v_component, v_level, v_message using detail = v_attrs::text;
    if v_may_hide then
        perform set_config('log_min_error_statement', v_hide_from, true);
    end if;
end;
$$;

revoke all on function pgque.log_event(text, text, text, jsonb) from public;
grant execute on function pgque.log_event(text, text, text, jsonb) to pgque_reader, pgque_writer;
