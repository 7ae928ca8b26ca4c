-- Read the events of an open batch, in the order of their ids, without those that have outlived the
-- queue's event_ttl. May be called as often as needed.
-- Volatile, so that it finds a batch that next_batch() took in the same statement.

create or replace function pgque.get_batch_events(
    batch_id bigint,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry int4,
    out ev_type text, out ev_data text,
    out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query execute
        'select b.ev_id, b.ev_time, b.ev_txid::text::bigint, b.ev_retry, b.ev_type, b.ev_data, '
        'b.ev_extra1, b.ev_extra2, b.ev_extra3, b.ev_extra4 '
        'from (' || pgque.batch_delivery_sql(batch_id) || ') as b order by b.ev_id';
end;
$$;

revoke all on function pgque.get_batch_events(bigint) from public;
grant execute on function pgque.get_batch_events(bigint) to pgque_reader;
