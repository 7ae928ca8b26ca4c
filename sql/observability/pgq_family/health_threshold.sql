-- What the health checks judge by, changed by plain SQL and at once in force:
--
--   update {pack}.health_threshold set dead_letters_warning = 50 where queue_name = '*';
--   insert into {pack}.health_threshold (queue_name, lag_critical) values ('billing', '10 minutes');
--
-- The row '*' holds for every queue; a queue's own row needs only what differs, the rest is null there.
create table if not exists {pack}.health_threshold (
    queue_name                 text not null,
    tick_grace                 interval,  -- a tick may come so much later than 1.5 idle periods after the last
    unticked_grace             interval,  -- an event may wait so much longer for its tick than the queue's max lag
    lag_warning                interval,  -- null in both rows: half the queue's rotation period
    lag_critical               interval,  -- null in both rows: the queue's rotation period
    stuck_after                interval,  -- null in both rows: an hour, or half the rotation period if that is longer
    rotation_grace             interval,  -- a rotation may come so much later than two periods after the last
    retry_grace                interval,  -- a retry may come so much later than it is due
    dead_letters_warning       bigint,    -- more than so many in all
    dead_letters_hour_warning  bigint,    -- so many within an hour
    dead_letters_hour_critical bigint,    -- so many within an hour

    constraint health_threshold_pkey primary key (queue_name),
    constraint health_threshold_default_check check (
        queue_name <> '*' or (
            tick_grace is not null and unticked_grace is not null and rotation_grace is not null
            and retry_grace is not null and dead_letters_warning is not null
            and dead_letters_hour_warning is not null and dead_letters_hour_critical is not null)),
    constraint health_threshold_grace_check check (
        least(tick_grace, unticked_grace, rotation_grace, retry_grace) >= interval '0'),
    constraint health_threshold_lag_check check (
        least(lag_warning, lag_critical, stuck_after) > interval '0' and lag_warning <= lag_critical),
    -- Dead letters are counted up to 2,000: what can't be seen can't be judged.
    constraint health_threshold_dead_letters_check check (
        dead_letters_warning between 0 and 1999
        and dead_letters_hour_warning between 1 and 2000
        and dead_letters_hour_critical between 1 and 2000
        and dead_letters_hour_warning <= dead_letters_hour_critical)
);

-- A mistyped name would be a threshold that never holds; without the row '*' nothing could be judged.
create or replace function {pack}.check_health_threshold()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'TRUNCATE' or old.queue_name = '*' and (tg_op = 'DELETE' or new.queue_name <> '*') then
        raise exception 'the thresholds for all queues (queue_name ''*'') can''t be removed'
            using errcode = 'restrict_violation', hint = 'Update the row, or delete the rows of single queues.';
    elsif tg_op = 'DELETE' then
        return old;
    elsif new.queue_name <> '*' and not exists (
        select from {engine}.queue q where q.queue_name = new.queue_name
    ) then
        raise exception 'queue not found: %', new.queue_name
            using errcode = 'undefined_object', hint = 'select queue_name from {engine}.queue lists them';
    end if;
    return new;
end
$$;

revoke all on function {pack}.check_health_threshold() from public;

create or replace trigger check_row
    before insert or update of queue_name or delete on {pack}.health_threshold
    for each row execute function {pack}.check_health_threshold();
create or replace trigger check_truncate
    before truncate on {pack}.health_threshold
    for each statement execute function {pack}.check_health_threshold();

insert into {pack}.health_threshold (
    queue_name, tick_grace, unticked_grace, rotation_grace, retry_grace,
    dead_letters_warning, dead_letters_hour_warning, dead_letters_hour_critical)
values ('*', '30 seconds', '10 seconds', '1 minute', '5 minutes', 1000, 10, 1000)
on conflict do nothing;

revoke all on {pack}.health_threshold from public;
grant select on {pack}.health_threshold to pgque_monitor;
grant select, insert, update, delete on {pack}.health_threshold to {admin};
