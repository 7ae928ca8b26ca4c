-- Stop handing out new events of a queue, and go on. Producers notice nothing: what they send while the
-- queue is paused comes with the first tick after it.

create or replace function pgque.pause_queue(queue text)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pgque.set_queue_config(queue, 'ticker_paused', 'true');
end;
$$;

create or replace function pgque.resume_queue(queue text)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pgque.set_queue_config(queue, 'ticker_paused', 'false');
end;
$$;

revoke all on function pgque.pause_queue(text) from public;
revoke all on function pgque.resume_queue(text) from public;
grant execute on function pgque.pause_queue(text) to pgque_admin;
grant execute on function pgque.resume_queue(text) to pgque_admin;
