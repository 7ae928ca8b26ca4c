"""What a database consists of, to be compared before and after."""

from __future__ import annotations

from tests.support.database import Connection
from tests.support.queue import rows

_OBJECTS = {
    "functions": """
        select p.oid::regprocedure::text as name, pg_get_function_result(p.oid), md5(p.prosrc), p.provolatile,
            p.prosecdef, p.proconfig, p.proowner::regrole::text,
            array(select a::text from unnest(p.proacl) a order by 1)
        from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace""",
    "relations": """
        select c.oid::regclass::text as name, c.relkind, c.relowner::regrole::text,
            array(select a::text from unnest(c.relacl) a order by 1)
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace""",
    "columns": """
        select c.oid::regclass || '.' || a.attname as name, a.atttypid::regtype::text, a.attacl::text
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid and a.attnum > 0 and not a.attisdropped
        join pg_namespace n on n.oid = c.relnamespace""",
    "types": """
        select t.oid::regtype::text as name, t.typowner::regrole::text, t.typacl::text
        from pg_type t
        join pg_namespace n on n.oid = t.typnamespace""",
    "constraints": """
        select k.conrelid::regclass || '.' || k.conname as name, pg_get_constraintdef(k.oid)
        from pg_constraint k
        join pg_namespace n on n.oid = k.connamespace""",
}
_OTHERS = {
    "comments": """
        select pg_describe_object(classoid, objoid, objsubid) as name, description
        from pg_description
        where objoid >= 16384""",
    "schemas": "select nspname as name, nspacl::text from pg_namespace where nspname !~ '^pg_'",
    "default rights": """
        select defaclrole::regrole::text as name, defaclobjtype, defaclacl::text from pg_default_acl""",
    "triggers": "select pg_get_triggerdef(oid) as name, tgenabled from pg_trigger where not tgisinternal",
    "settings": "select setrole::regrole::text as name, setconfig from pg_db_role_setting",
}


def catalog_of(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    """All that an install could leave behind in a database, without object ids."""
    ours = "where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')"
    queries = {kind: f"{query} {ours}" for kind, query in _OBJECTS.items()} | _OTHERS
    return {kind: rows(connection, f"{query} order by name") for kind, query in queries.items()}
