-- What the pipeline makes of months of metrics, back in PostgreSQL: a pack of its own, which the service
-- polls where a target says `history: true`. Whoever may write here says what is normal for every database.
create schema if not exists queue_history;
comment on schema queue_history is '{mark} {version}';
revoke all on schema queue_history from public;
grant usage on schema queue_history to pgque_monitor;
