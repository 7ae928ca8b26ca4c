-- Read a batch too large for one answer: the first quick_limit events come at once, the rest by
-- `fetch ... from <cursor_name>` in the same transaction.
--
-- extra_where is SQL and is run as it stands, so it must never hold what a user typed. For that reason
-- both forms run with the rights of the caller and not of the engine's owner: whoever may use them
-- gains nothing by what he writes there. Names in it are looked for in pg_catalog only.

create or replace function pgque.get_batch_cursor(
    batch_id bigint, cursor_name text, quick_limit int4, extra_where text,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text,
    out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text
)
returns setof record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute format(
        'declare %I no scroll cursor for '
        'select b.ev_id, b.ev_time, b.ev_txid::text::bigint as ev_txid, b.ev_retry, b.ev_type, b.ev_data, '
        'b.ev_extra1, b.ev_extra2, b.ev_extra3, b.ev_extra4 from (', cursor_name)
        || pgque.batch_delivery_sql(batch_id) || ') as b'
        || coalesce(' where (' || extra_where || ')', '')
        || ' order by b.ev_id';
    if quick_limit > 0 then
        return query execute format('fetch %s from %I', quick_limit, cursor_name);
    end if;
end;
$$;

create or replace function pgque.get_batch_cursor(
    batch_id bigint, cursor_name text, quick_limit int4,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text,
    out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text
)
returns setof record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select b.* from pgque.get_batch_cursor(batch_id, cursor_name, quick_limit, null) as b;
end;
$$;

revoke all on function pgque.get_batch_cursor(bigint, text, int4, text) from public;
revoke all on function pgque.get_batch_cursor(bigint, text, int4) from public;
grant execute on function pgque.get_batch_cursor(bigint, text, int4, text) to pgque_admin;
grant execute on function pgque.get_batch_cursor(bigint, text, int4) to pgque_admin;
