-- What consumers gave up on and why, without payloads: to be read a page at a time, each after the last id
-- of the page before. At most 10,000 rows a page. Of an engine that keeps no dead letters there are none.
--
-- With the owner's rights: a grant on the table's columns would give away reasons of any length, and
-- consumers write into them what they like. As in the engine's own log, the first 200 characters leave.
create or replace function {pack}.dead_letters(after_id bigint default 0, max_rows int4 default 1000)
returns table (
    dead_letter_id bigint, queue_name text, consumer_name text, dead_at timestamptz, event_type text, reason text
)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select d.dl_id, q.queue_name, c.co_name, d.dl_time, left(d.ev_type, 200), left(d.dl_reason, 200)
    from (
        select l.dl_id, l.dl_queue_id, l.dl_consumer_id, l.dl_time, l.ev_type, l.dl_reason
        from {dead_letter} l
        where l.dl_id > after_id
        order by l.dl_id
        limit least(greatest(coalesce(max_rows, 10000), 0), 10000)
    ) d
    left join {engine}.queue q on q.queue_id = d.dl_queue_id
    left join {engine}.consumer c on c.co_id = d.dl_consumer_id
    order by d.dl_id
$$;

revoke all on function {pack}.dead_letters(bigint, int4) from public;
grant execute on function {pack}.dead_letters(bigint, int4) to pgque_monitor;
