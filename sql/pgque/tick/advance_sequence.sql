-- Raise a sequence to at least the given value while others draw from it. Internal.
--
-- setval() could hand out again what somebody has drawn since the last value was read. Drawing is
-- safe. A distance too long to draw is jumped after a first stretch: nobody else draws that many
-- within one statement.

create or replace function pgque.advance_sequence(seq regclass, target bigint)
returns void
language plpgsql
as $$
declare
    v_gap bigint := target - coalesce(pg_catalog.pg_sequence_last_value(seq), 0);
begin
    if v_gap > 1000000 then
        perform pg_catalog.setval(seq, target);
    elsif v_gap > 0 then
        perform pg_catalog.nextval(seq) from pg_catalog.generate_series(1, v_gap);
    end if;
end;
$$;

revoke all on function pgque.advance_sequence(regclass, bigint) from public;
grant execute on function pgque.advance_sequence(regclass, bigint) to pgque_admin;
