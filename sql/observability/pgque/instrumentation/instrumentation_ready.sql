-- Whether a trigger may write to the log now: false when somebody has it locked, or when it is gone.
--
-- A consumer must neither wait for the instrumentation nor fail because of it. Then its work goes on
-- uncounted, which the server's log tells. The exception block gets no transaction id of its own, as
-- nothing is written inside; a block around the insert would use up one per batch.
create or replace function pgque.instrumentation_ready()
returns boolean
language plpgsql
as $$
begin
    lock table pgque.instrumentation_log in row exclusive mode nowait;
    return true;
exception
    when others then
        raise log 'the instrumentation of pgque did not count: %', sqlerrm;
        return false;
end
$$;

revoke all on function pgque.instrumentation_ready() from public;
