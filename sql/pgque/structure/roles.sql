-- Three roles, the same in every database of the server: one that consumes, one that produces, one
-- that runs the queues. Consuming and producing are siblings, so that a producer can never
-- acknowledge the batch of somebody else. Grant them to your own login roles.
--
-- Roles belong to the server and not to the database: they may be there already, or be created by
-- an install in another database at this very moment.

do $$
declare
    v_role text;
begin
    foreach v_role in array array['pgque_reader', 'pgque_writer', 'pgque_admin'] loop
        if not exists (select from pg_catalog.pg_roles as r where r.rolname = v_role) then
            begin
                execute pg_catalog.format('create role %I nologin', v_role);
            exception
                when duplicate_object or unique_violation then
                    null;
            end;
        end if;
    end loop;

    -- Granting what is granted already would need the right to grant, which a later install by
    -- another owner may not have.
    foreach v_role in array array['pgque_reader', 'pgque_writer'] loop
        if not exists (
            select
            from pg_catalog.pg_auth_members as m
            where m.roleid = pg_catalog.to_regrole(v_role)
              and m.member = pg_catalog.to_regrole('pgque_admin')
        ) then
            begin
                execute pg_catalog.format('grant %I to pgque_admin', v_role);
            exception
                -- What PostgreSQL says when two databases grant the same thing at once.
                when unique_violation or internal_error then
                    null;
            end;
        end if;
    end loop;
end;
$$;

-- Usage only. A role that could create objects in here, or triggers on the tables below, could run
-- code of its own with the rights of the engine's owner.
grant usage on schema pgque to pgque_reader, pgque_writer, pgque_admin;
