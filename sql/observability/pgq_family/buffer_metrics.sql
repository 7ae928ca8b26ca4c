-- Append what otel_metrics() says now to metrics_buffer and drop what is older than `keep`; to be called by
-- a scheduler. Returns the number of rows appended.
--
-- So that shortening `keep` doesn't end in one long transaction, a call drops no more than twice what it
-- appends or 10,000 rows: the buffer shrinks call by call.
create or replace function {pack}.buffer_metrics(keep interval default '1 day')
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    appended bigint;
begin
    if keep is null or keep <= interval '0' then
        raise exception 'keep must be positive, not %', coalesce(keep::text, 'null')
            using errcode = 'invalid_parameter_value';
    end if;

    insert into {pack}.metrics_buffer (collected_at, metric_name, metric_type, value, labels)
    select now(), m.metric_name, m.metric_type, m.value, m.labels
    from {pack}.otel_metrics() m;
    get diagnostics appended = row_count;

    delete from {pack}.metrics_buffer b
    where b.ctid = any (array(
        select o.ctid
        from {pack}.metrics_buffer o
        where o.collected_at < now() - keep
        order by o.collected_at
        limit greatest(appended * 2, 10000)
        for update skip locked));  -- another call is at those
    return appended;
end
$$;

revoke all on function {pack}.buffer_metrics(interval) from public;
grant execute on function {pack}.buffer_metrics(interval) to {admin};
