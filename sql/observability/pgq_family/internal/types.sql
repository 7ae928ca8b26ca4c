-- Row types that the pack's functions hand to each other, so that one call observes every queue and
-- consumer once, whatever is derived from it. They are made anew on each install, with the functions,
-- unless somebody's view needs them as they are.
do $$
begin
    if to_regtype('{pack}.observed_queue') is null then
        create type {pack}.observed_queue as (
            queue_id int4,
            queue_name text,
            paused boolean,
            external_ticker boolean,
            ticker_max_lag interval,
            ticker_idle_period interval,
            cur_table int4,
            switch_time timestamptz,
            mid_rotation boolean,          -- between the two steps of a rotation
            rotation_period interval,
            sent bigint,                   -- event ids ever handed out; null: the sequence can't be read
            unticked bigint,               -- events that no tick covers yet
            unticked_since timestamptz,    -- oldest of them, where the event table was asked
            last_tick_id bigint,
            last_tick_time timestamptz,
            tick_overdue boolean,          -- idle queues tick once per idle period, a bit late at worst
            ticker_late boolean,           -- events wait longer for a tick than the queue's max lag allows
            ids_went_backwards boolean,    -- the last tick lies in the future of this server's transaction ids
            events_per_sec numeric,
            consumers int4,                -- logical ones: a cooperative group counts as one
            depth bigint,                  -- pending events of the slowest consumer
            oldest interval,               -- longest lag of a consumer
            discards boolean,              -- events that nobody is subscribed to will be rotated away
            dead_letters bigint,           -- up to 2,000
            dead_letters_hour bigint,      -- of these, younger than an hour
            retries bigint,                -- waiting, up to 2,000
            retries_overdue bigint,        -- of these, past their time by more than the grace; up to 2,000 in all queues
            retries_overdue_since timestamptz,
            -- what it is judged by
            rotation_grace interval,
            dead_letters_warning bigint,
            dead_letters_hour_warning bigint,
            dead_letters_hour_critical bigint
        );
    end if;

    if to_regtype('{pack}.observed_consumer') is null then
        create type {pack}.observed_consumer as (
            queue_id int4,
            queue_name text,
            consumer_name text,
            last_active timestamptz,
            missing_tick boolean,          -- its position or open batch points to a tick that is gone
            acked bigint,                  -- event_seq at its position
            ticked_pending bigint,         -- events it could take now, its open batches included
            pending bigint,                -- the same plus events that no tick covers yet
            lag interval,                  -- 0 when nothing is pending
            open_batches int4,
            open_events bigint,
            open_since timestamptz,
            batch_id bigint,
            holds_rotation boolean,        -- rotation waits for it
            -- what it is judged by
            lag_warning interval,
            lag_critical interval,
            stuck_after interval
        );
    end if;
end
$$;
