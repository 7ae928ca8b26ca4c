-- A text as one part of a URL-encoded list: letters, digits and _ . - stay, a blank becomes +, every
-- other byte %hh. Internal to logutriga().

create or replace function pgque.url_encode(value text)
returns text
language sql
immutable
as $$
    select case
        when value !~ '[^A-Za-z0-9_.-]' collate "C" then value
        else (
            select pg_catalog.string_agg(
                case
                    when c.letter = ' ' then '+'
                    when c.letter ~ '[A-Za-z0-9_.-]' collate "C" then c.letter
                    else pg_catalog.regexp_replace(
                        pg_catalog.encode(pg_catalog.convert_to(c.letter, 'UTF8'), 'hex'),
                        '(..)', '%\1', 'g')
                end, '' order by c.place)
            from pg_catalog.string_to_table(value, null) with ordinality as c (letter, place)
        )
    end
$$;

revoke all on function pgque.url_encode(text) from public;
grant execute on function pgque.url_encode(text) to pgque_writer;
