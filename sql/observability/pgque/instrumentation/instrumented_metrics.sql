-- What the instrumentation adds to otel_metrics(), as rows of the same kind. Exact at any moment, and
-- never falling: totals and what isn't rolled up yet are read in one snapshot.
--
-- A histogram comes as the rows <name>_bucket, one per upper bound `le` and cumulative, <name>_sum and
-- <name>_count.
--
-- The body is bound when it is made, so no search path can change what its names mean, and it is planned
-- with the query that calls it: never for tables as they were long ago.
create or replace function pgque.instrumented_metrics()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language sql
stable
begin atomic
    with cell as materialized (
        select
            l.queue_id, l.sub_id, l.what,
            pgque.instrumentation_bucket('processing', l.processing) as processing_le,
            case when l.what = 'batch' then pgque.instrumentation_bucket('size', l.events) else 0 end as size_le,
            count(*) as entries, sum(l.events) as events, sum(l.processing) as processing
        from pgque.instrumentation_log l
        group by l.queue_id, l.sub_id, l.what, processing_le, size_le
        union all
        select t.queue_id, t.sub_id, t.what, t.processing_le, t.size_le, t.entries, t.events, t.processing
        from pgque.instrumentation_total t
    ),
    counted as materialized (
        select
            c.queue_id, c.sub_id, c.what,
            coalesce(sum(c.events), 0) as events,
            coalesce(sum(c.processing), 0) as processing
        from cell c
        group by c.queue_id, c.sub_id, c.what
    ),
    bucketed as materialized (
        select c.sub_id, 'processing' as histogram, c.processing_le as le, sum(c.entries) as entries
        from cell c
        where c.processing_le <> 0
        group by c.sub_id, c.processing_le
        union all
        select c.sub_id, 'size', c.size_le, sum(c.entries)
        from cell c
        where c.size_le <> 0
        group by c.sub_id, c.size_le
    ),
    consumer as materialized (
        select
            s.sub_queue as queue_id, s.sub_id,
            jsonb_build_object('queue', q.queue_name, 'consumer', c.co_name) as labels
        from pgque.subscription s
        join pgque.queue q on q.queue_id = s.sub_queue
        join pgque.consumer c on c.co_id = s.sub_consumer
        where s.sub_role <> 'coop_member'
    ),
    labelled as (
        select k.queue_id, k.sub_id, k.labels from consumer k
        union all
        select q.queue_id, 0, jsonb_build_object('queue', q.queue_name) from pgque.queue q
    ),
    histogram(histogram, metric_name, unit) as (
        values
            ('processing', 'pgque.processing_latency_seconds', 1000000),
            ('size', 'pgque.batch.size', 1)
    ),
    bucket as materialized (
        select
            h.histogram, h.metric_name || '_bucket' as metric_name, b.le,
            jsonb_build_object('le', case when b.le = 9223372036854775807 then '+Inf'
                else trim_scale(b.le::numeric / h.unit)::text end) as label
        from histogram h
        cross join lateral unnest(pgque.instrumentation_bounds(h.histogram)) b(le)
    )
    select m.metric_name, 'counter', coalesce(c.events, 0), k.labels
    from (values
        (true, 'pgque.message.acked_total', 'batch'),
        (true, 'pgque.message.nacked_total', 'nacked'),
        (true, 'pgque.message.redelivered_total', 'redelivered'),
        (true, 'pgque.message.dead_lettered_total', 'dead_lettered'),
        (false, 'pgque.message.replayed_total', 'replayed'),
        (false, 'pgque.message.purged_total', 'purged')
    ) m(per_consumer, metric_name, what)
    join labelled k on m.per_consumer = (k.sub_id <> 0)
    left join counted c on c.queue_id = k.queue_id and c.sub_id = k.sub_id and c.what = m.what
    union all
    select
        b.metric_name, 'histogram',
        coalesce(sum(n.entries) over (partition by k.sub_id, b.histogram order by b.le), 0),
        k.labels || b.label
    from consumer k
    cross join bucket b
    left join bucketed n on n.sub_id = k.sub_id and n.histogram = b.histogram and n.le = b.le
    union all
    select h.metric_name || v.suffix, 'histogram', v.value, k.labels
    from consumer k
    cross join histogram h
    left join (
        select n.sub_id, n.histogram, sum(n.entries) as entries
        from bucketed n
        group by n.sub_id, n.histogram
    ) n on n.sub_id = k.sub_id and n.histogram = h.histogram
    left join counted c on c.queue_id = k.queue_id and c.sub_id = k.sub_id and c.what = 'batch'
    cross join lateral (values
        ('_count', coalesce(n.entries, 0)),
        ('_sum', coalesce(case h.histogram when 'size' then c.events else c.processing end, 0) / h.unit)
    ) v(suffix, value)
    union all
    select 'pgque.instrumentation.log_rows', 'gauge', count(*), '{}'
    from pgque.instrumentation_log;
end;

revoke all on function pgque.instrumented_metrics() from public;
grant execute on function pgque.instrumented_metrics() to pgque_monitor;
