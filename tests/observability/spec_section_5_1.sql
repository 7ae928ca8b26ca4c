-- Test data, not part of the product: the observability SQL of the PgQue specification (pgque-spec.md
-- 0.1.0-draft, section 5.1, and otel_metrics() and log_event() of section 5.2), whose answers
-- test_facts.py compares with those of the pack. It is the specification's text, in its own style, with
-- three differences:
--
--  * the document runs code on behind `--` comments; line breaks stand again where they belong;
--  * the functions live in schema spec_text, beside the pack's functions of the same names; they read the
--    same tables of schema pgque;
--  * for throughput(), latency_percentiles(), error_rate(), in_flight() and stuck_consumers() the
--    document has signatures and a comment each. The bodies below are the most literal reading of those
--    comments, in the style of the rest; each says what it takes the comment to mean.
CREATE SCHEMA spec_text;

-- ---- 5.1, given as SQL ----

CREATE FUNCTION spec_text.queue_stats()
RETURNS TABLE (
    queue_name text,
    queue_id int4,
    depth bigint,               -- events pending across all consumers
    oldest_msg_age interval,    -- age of oldest unconsumed event
    consumers int4,             -- number of registered consumers
    events_per_sec numeric,     -- throughput estimate (ticks-based)
    cur_table int4,             -- current rotation table index
    rotation_age interval,      -- time since last rotation
    rotation_period interval,   -- configured rotation period
    ticker_paused boolean,
    last_tick_time timestamptz,
    last_tick_id bigint,
    dlq_count bigint            -- dead letter queue entries
) AS $$
BEGIN
    RETURN QUERY
    SELECT
        q.queue_name,
        q.queue_id,
        coalesce(
            (SELECT max(t_cur.tick_event_seq) - min(t_sub.tick_event_seq)
             FROM pgque.subscription s
             JOIN pgque.tick t_sub ON t_sub.tick_queue = q.queue_id AND t_sub.tick_id = s.sub_last_tick
             CROSS JOIN LATERAL (
                 SELECT tick_event_seq
                 FROM pgque.tick
                 WHERE tick_queue = q.queue_id
                 ORDER BY tick_id DESC LIMIT 1
             ) t_cur
             WHERE s.sub_queue = q.queue_id
            ), 0)::bigint AS depth,
        (SELECT now() - min(t.tick_time)
         FROM pgque.subscription s
         JOIN pgque.tick t ON t.tick_queue = q.queue_id AND t.tick_id = s.sub_last_tick
         WHERE s.sub_queue = q.queue_id
        ) AS oldest_msg_age,
        (SELECT count(*)::int4
         FROM pgque.subscription
         WHERE sub_queue = q.queue_id) AS consumers,
        (SELECT CASE WHEN t2.tick_time = t1.tick_time THEN 0
             ELSE (t2.tick_event_seq - t1.tick_event_seq)::numeric
                 / extract(epoch from t2.tick_time - t1.tick_time)
             END
         FROM pgque.tick t1, pgque.tick t2
         WHERE t1.tick_queue = q.queue_id
           AND t2.tick_queue = q.queue_id
           AND t2.tick_id = (SELECT max(tick_id) FROM pgque.tick WHERE tick_queue = q.queue_id)
           AND t1.tick_id = t2.tick_id - 1
        ) AS events_per_sec,
        q.queue_cur_table,
        now() - q.queue_switch_time AS rotation_age,
        q.queue_rotation_period,
        q.queue_ticker_paused,
        (SELECT max(tick_time) FROM pgque.tick WHERE tick_queue = q.queue_id) AS last_tick_time,
        (SELECT max(tick_id) FROM pgque.tick WHERE tick_queue = q.queue_id) AS last_tick_id,
        (SELECT count(*) FROM pgque.dead_letter WHERE dl_queue_id = q.queue_id)::bigint AS dlq_count
    FROM pgque.queue q
    ORDER BY q.queue_name;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

CREATE FUNCTION spec_text.consumer_stats()
RETURNS TABLE (
    queue_name text,
    consumer_name text,
    lag interval,               -- time behind latest tick
    pending_events bigint,      -- estimated events to process
    last_seen timestamptz,      -- sub_active timestamp
    batch_active boolean,       -- has an open batch
    batch_id bigint             -- current batch ID (NULL if none)
) AS $$
BEGIN
    RETURN QUERY
    SELECT
        q.queue_name,
        c.co_name,
        now() - t.tick_time AS lag,
        coalesce(
            (SELECT max(t2.tick_event_seq)
             FROM pgque.tick t2
             WHERE t2.tick_queue = q.queue_id) - t.tick_event_seq,
            0)::bigint AS pending_events,
        s.sub_active,
        s.sub_batch IS NOT NULL,
        s.sub_batch
    FROM pgque.subscription s
    JOIN pgque.queue q ON q.queue_id = s.sub_queue
    JOIN pgque.consumer c ON c.co_id = s.sub_consumer
    LEFT JOIN pgque.tick t ON t.tick_queue = s.sub_queue AND t.tick_id = s.sub_last_tick
    ORDER BY q.queue_name, c.co_name;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

CREATE FUNCTION spec_text.queue_health()
RETURNS TABLE (
    queue_name text,
    check_name text,
    status text,                -- 'ok', 'warning', 'critical'
    detail text
) AS $$
BEGIN
    -- Check: ticker is running (handle queues with no ticks yet)
    RETURN QUERY
    SELECT q.queue_name, 'ticker_running'::text,
        CASE WHEN max(t.tick_time) IS NULL THEN 'critical'
             WHEN now() - max(t.tick_time) > interval '10 seconds' THEN 'critical'
             ELSE 'ok' END,
        'Last tick: ' || coalesce(max(t.tick_time)::text, 'never')
    FROM pgque.queue q
    LEFT JOIN pgque.tick t ON t.tick_queue = q.queue_id
    WHERE NOT q.queue_ticker_paused
    GROUP BY q.queue_name;

    -- Check: consumer lag
    RETURN QUERY
    SELECT q.queue_name, ('consumer_lag:' || c.co_name)::text,
        CASE WHEN now() - t.tick_time > q.queue_rotation_period THEN 'critical'
             WHEN now() - t.tick_time > q.queue_rotation_period / 2 THEN 'warning'
             ELSE 'ok' END,
        c.co_name || ' lag: ' || (now() - t.tick_time)::text
    FROM pgque.subscription s
    JOIN pgque.queue q ON q.queue_id = s.sub_queue
    JOIN pgque.consumer c ON c.co_id = s.sub_consumer
    JOIN pgque.tick t ON t.tick_queue = s.sub_queue AND t.tick_id = s.sub_last_tick;

    -- Check: rotation overdue
    RETURN QUERY
    SELECT q.queue_name, 'rotation_health'::text,
        CASE WHEN q.queue_switch_step2 IS NULL THEN 'warning'
             WHEN now() - q.queue_switch_time > q.queue_rotation_period * 2 THEN 'warning'
             ELSE 'ok' END,
        CASE WHEN q.queue_switch_step2 IS NULL THEN 'mid-rotation (step2 pending)'
             ELSE 'last rotation: ' || q.queue_switch_time::text END
    FROM pgque.queue q;

    -- Check: DLQ growing
    RETURN QUERY
    SELECT q.queue_name, 'dlq_health'::text,
        CASE WHEN count(dl.*) > 1000 THEN 'warning'
             WHEN count(dl.*) > 0 THEN 'ok'
             ELSE 'ok' END,
        count(dl.*)::text || ' dead letter events'
    FROM pgque.queue q
    LEFT JOIN pgque.dead_letter dl ON dl.dl_queue_id = q.queue_id
    GROUP BY q.queue_name;

    -- Check: pg_cron jobs
    RETURN QUERY
    SELECT 'system'::text, 'pg_cron_ticker'::text,
        CASE WHEN cfg.ticker_job_id IS NULL THEN 'critical' ELSE 'ok' END,
        CASE WHEN cfg.ticker_job_id IS NULL THEN 'ticker job not scheduled'
             ELSE 'job_id=' || cfg.ticker_job_id::text END
    FROM pgque.config cfg;

    RETURN QUERY
    SELECT 'system'::text, 'pg_cron_maint'::text,
        CASE WHEN cfg.maint_job_id IS NULL THEN 'critical' ELSE 'ok' END,
        CASE WHEN cfg.maint_job_id IS NULL THEN 'maint job not scheduled'
             ELSE 'job_id=' || cfg.maint_job_id::text END
    FROM pgque.config cfg;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

-- ---- 5.1, given as signatures ----

-- "Uses tick history to compute per-bucket throughput": what came between a tick and the one before it
-- counts in the bucket of the later tick; a bucket's rate is its events over its size.
CREATE FUNCTION spec_text.throughput(queue_name text, period interval, bucket_size interval)
RETURNS TABLE (bucket_start timestamptz, events bigint, events_per_sec numeric) AS $$
BEGIN
    RETURN QUERY
    SELECT
        to_timestamp(floor(extract(epoch from d.tick_time) / extract(epoch from bucket_size))
            * extract(epoch from bucket_size)),
        sum(d.delta)::bigint,
        sum(d.delta) / extract(epoch from bucket_size)
    FROM (
        SELECT t.tick_time, t.tick_event_seq - lag(t.tick_event_seq) OVER (ORDER BY t.tick_id) AS delta
        FROM pgque.tick t
        JOIN pgque.queue q ON q.queue_id = t.tick_queue
        WHERE q.queue_name = throughput.queue_name
          AND t.tick_time > now() - period
    ) d
    WHERE d.delta IS NOT NULL
    GROUP BY 1
    ORDER BY 1;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

-- "Estimated from tick-to-consume gap": of the ticks of the period that the consumer is past, from the
-- tick to the consumer's last activity, the only time of consumption that there is.
CREATE FUNCTION spec_text.latency_percentiles(queue_name text, consumer_name text, period interval)
RETURNS TABLE (p50 interval, p95 interval, p99 interval) AS $$
BEGIN
    RETURN QUERY
    SELECT
        percentile_cont(0.50) WITHIN GROUP (ORDER BY s.sub_active - t.tick_time),
        percentile_cont(0.95) WITHIN GROUP (ORDER BY s.sub_active - t.tick_time),
        percentile_cont(0.99) WITHIN GROUP (ORDER BY s.sub_active - t.tick_time)
    FROM pgque.subscription s
    JOIN pgque.queue q ON q.queue_id = s.sub_queue
    JOIN pgque.consumer c ON c.co_id = s.sub_consumer
    JOIN pgque.tick t ON t.tick_queue = s.sub_queue AND t.tick_id <= s.sub_last_tick
    WHERE q.queue_name = latency_percentiles.queue_name
      AND c.co_name = latency_percentiles.consumer_name
      AND t.tick_time > now() - period;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

-- "Retries + DLQ per time period": the rows of retry_queue and dead_letter by the time that each has,
-- in every bucket from the beginning of the period until now.
CREATE FUNCTION spec_text.error_rate(queue_name text, period interval, bucket_size interval)
RETURNS TABLE (bucket_start timestamptz, retries bigint, dead_letters bigint) AS $$
BEGIN
    RETURN QUERY
    SELECT
        b.bucket,
        (SELECT count(*)
         FROM pgque.retry_queue r
         JOIN pgque.queue q ON q.queue_id = r.ev_queue
         WHERE q.queue_name = error_rate.queue_name
           AND r.ev_retry_after >= b.bucket AND r.ev_retry_after < b.bucket + bucket_size),
        (SELECT count(*)
         FROM pgque.dead_letter dl
         JOIN pgque.queue q ON q.queue_id = dl.dl_queue_id
         WHERE q.queue_name = error_rate.queue_name
           AND dl.dl_time >= b.bucket AND dl.dl_time < b.bucket + bucket_size)
    FROM generate_series(now() - period, now(), bucket_size) b(bucket)
    ORDER BY b.bucket;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

-- "Messages currently being processed": the open batches.
CREATE FUNCTION spec_text.in_flight(queue_name text)
RETURNS TABLE (consumer_name text, batch_id bigint, batch_age interval, estimated_events bigint) AS $$
BEGIN
    RETURN QUERY
    SELECT c.co_name, s.sub_batch, now() - s.sub_active, t_next.tick_event_seq - t_last.tick_event_seq
    FROM pgque.subscription s
    JOIN pgque.queue q ON q.queue_id = s.sub_queue
    JOIN pgque.consumer c ON c.co_id = s.sub_consumer
    JOIN pgque.tick t_last ON t_last.tick_queue = s.sub_queue AND t_last.tick_id = s.sub_last_tick
    JOIN pgque.tick t_next ON t_next.tick_queue = s.sub_queue AND t_next.tick_id = s.sub_next_tick
    WHERE q.queue_name = in_flight.queue_name
      AND s.sub_batch IS NOT NULL
    ORDER BY c.co_name;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

-- "Consumers that haven't processed in a long time": those whose lag is beyond the threshold.
CREATE FUNCTION spec_text.stuck_consumers(threshold interval DEFAULT '1 hour')
RETURNS TABLE (queue_name text, consumer_name text, lag interval, last_active timestamptz) AS $$
BEGIN
    RETURN QUERY
    SELECT cs.queue_name, cs.consumer_name, cs.lag, cs.last_seen
    FROM spec_text.consumer_stats() cs
    WHERE cs.lag > threshold
    ORDER BY cs.lag DESC;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

-- ---- 5.2 ----

CREATE FUNCTION spec_text.otel_metrics()
RETURNS TABLE (
    metric_name text,
    metric_type text,           -- 'gauge', 'counter'
    value numeric,
    labels jsonb                -- {"queue": "orders", "consumer": "processor"}
) AS $$
BEGIN
    -- Queue depth gauges
    RETURN QUERY
    SELECT 'pgque.queue.depth'::text, 'gauge'::text, qs.depth::numeric,
        jsonb_build_object('queue', qs.queue_name)
    FROM spec_text.queue_stats() qs;

    -- Consumer lag gauges
    RETURN QUERY
    SELECT 'pgque.consumer.lag_seconds'::text, 'gauge'::text, extract(epoch from cs.lag)::numeric,
        jsonb_build_object('queue', cs.queue_name, 'consumer', cs.consumer_name)
    FROM spec_text.consumer_stats() cs;

    -- DLQ counters
    RETURN QUERY
    SELECT 'pgque.message.dead_lettered'::text, 'gauge'::text, qs.dlq_count::numeric,
        jsonb_build_object('queue', qs.queue_name)
    FROM spec_text.queue_stats() qs;

    -- Events per sec gauges
    RETURN QUERY
    SELECT 'pgque.queue.throughput'::text, 'gauge'::text, coalesce(qs.events_per_sec, 0),
        jsonb_build_object('queue', qs.queue_name)
    FROM spec_text.queue_stats() qs;
END;
$$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = pgque, pg_catalog;

CREATE FUNCTION spec_text.log_event(i_level text, i_component text, i_message text, i_attrs jsonb DEFAULT '{}')
RETURNS void AS $$
BEGIN
    RAISE LOG 'pgque.%.% %', i_component, i_level, i_message USING DETAIL = i_attrs::text;
END;
$$ LANGUAGE plpgsql;
