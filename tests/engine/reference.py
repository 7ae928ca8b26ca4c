"""What PgQue's function reference documents: each function, its result, and who may call it.

Names and types of arguments are part of it, as calls may name them; so are the names of result columns.
"""

from __future__ import annotations

import re

# Roles a function is granted to. pgque_admin is a member of both others and may call everything but
# what is the owner's alone.
READER, WRITER, BOTH, ADMIN, OWNER = "reader", "writer", "both", "admin", "owner"

_INFO = "setof record"
_BATCH_INFO = (
    "batch_id bigint, cur_tick_id bigint, prev_tick_id bigint, cur_tick_time timestamptz,"
    " prev_tick_time timestamptz, cur_tick_event_seq bigint, prev_tick_event_seq bigint"
)
_EVENTS = (
    "ev_id bigint, ev_time timestamptz, ev_txid bigint, ev_retry integer, ev_type text, ev_data text,"
    " ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text"
)
_QUEUE_INFO = (
    "queue_name text, queue_ntables integer, queue_cur_table integer, queue_rotation_period interval,"
    " queue_switch_time timestamptz, queue_external_ticker boolean, queue_ticker_paused boolean,"
    " queue_ticker_max_count integer, queue_ticker_max_lag interval, queue_ticker_idle_period interval,"
    " ticker_lag interval, ev_per_sec float8, ev_new bigint, last_tick_id bigint"
)
_CONSUMER_INFO = (
    "queue_name text, consumer_name text, lag interval, last_seen interval, last_tick bigint,"
    " current_batch bigint, next_tick bigint, pending_events bigint"
)

# (function with its arguments, result, columns of the result, granted to)
_FUNCTIONS: tuple[tuple[str, str, str, str], ...] = (
    # publishing
    ("send(queue_name text, payload jsonb)", "bigint", "", WRITER),
    ("send(queue_name text, payload text)", "bigint", "", WRITER),
    ("send(queue_name text, type_name text, payload jsonb)", "bigint", "", WRITER),
    ("send(queue_name text, type_name text, payload text)", "bigint", "", WRITER),
    ("send_batch(queue_name text, payloads jsonb[])", "bigint[]", "", WRITER),
    ("send_batch(queue_name text, type_name text, payloads jsonb[])", "bigint[]", "", WRITER),
    ("send_batch(queue_name text, payloads text[])", "bigint[]", "", WRITER),
    ("send_batch(queue_name text, type_name text, payloads text[])", "bigint[]", "", WRITER),
    ("insert_event_bulk(queue_name text, ev_type text, ev_data_list text[])", "bigint[]", "", OWNER),
    # consuming
    ("receive(queue text, consumer text, max_return integer default 100)",
     "setof pgque.message", "", READER),
    ("ack(batch_id bigint)", "integer", "", READER),
    ("nack(batch_id bigint, msg pgque.message, retry_after interval default '60 seconds',"
     " reason text default null)", "integer", "", READER),
    ("subscribe(queue text, consumer text)", "integer", "", READER),
    ("unsubscribe(queue text, consumer text)", "integer", "", READER),
    # cooperative consumers
    ("register_subconsumer(queue text, consumer text, subconsumer text,"
     " convert_normal boolean default false)", "integer", "", READER),
    ("subscribe_subconsumer(queue text, consumer text, subconsumer text,"
     " convert_normal boolean default false)", "integer", "", READER),
    ("unregister_subconsumer(queue text, consumer text, subconsumer text,"
     " batch_handling integer default 0)", "integer", "", READER),
    ("unsubscribe_subconsumer(queue text, consumer text, subconsumer text,"
     " batch_handling integer default 0)", "integer", "", READER),
    ("receive_coop(queue text, consumer text, subconsumer text, max_return integer default 100,"
     " dead_interval interval default null)", "setof pgque.message", "", READER),
    ("next_batch(queue text, consumer text, subconsumer text, dead_interval interval default null)",
     "bigint", "", READER),
    ("next_batch_custom(queue text, consumer text, subconsumer text, min_lag interval,"
     " min_count integer, min_interval interval, dead_interval interval default null)",
     "record", "batch_id bigint, prev_tick_id bigint, next_tick_id bigint", READER),
    ("touch_subconsumer(queue text, consumer text, subconsumer text)", "integer", "", READER),
    # queue management
    ("create_queue(queue text)", "integer", "", ADMIN),
    ("create_queue(queue text, options jsonb)", "integer", "", ADMIN),
    ("drop_queue(queue text)", "integer", "", ADMIN),
    ("drop_queue(queue text, force boolean)", "integer", "", ADMIN),
    ("set_queue_config(queue text, param text, value text)", "integer", "", ADMIN),
    ("pause_queue(queue text)", "void", "", ADMIN),
    ("resume_queue(queue text)", "void", "", ADMIN),
    # life cycle
    ("start()", "void", "", ADMIN),
    ("stop()", "void", "", ADMIN),
    ("ticker_loop()", "procedure", "", ADMIN),
    ("set_tick_period_ms(ms integer)", "integer", "", ADMIN),
    ("status()", "table", "component text, status text, detail text", ADMIN),
    ("version()", "text", "", READER),
    ("maint()", "integer", "", ADMIN),
    ("maint_retry_events()", "integer", "", ADMIN),
    ("maint_deliver_delayed()", "integer", "", ADMIN),
    ("ticker()", "bigint", "", ADMIN),
    ("ticker(queue text)", "bigint", "", ADMIN),
    ("ticker(queue text, tick_id bigint, tick_time timestamptz, event_seq bigint)", "bigint", "", ADMIN),
    ("force_next_tick(queue text)", "bigint", "", ADMIN),
    ("force_tick(queue text)", "bigint", "", ADMIN),
    ("uninstall()", "void", "", OWNER),
    # looking
    ("get_queue_info()", _INFO, _QUEUE_INFO, READER),
    ("get_queue_info(queue text)", _INFO, _QUEUE_INFO, READER),
    ("get_consumer_info()", _INFO, _CONSUMER_INFO, READER),
    ("get_consumer_info(queue text)", _INFO, _CONSUMER_INFO, READER),
    ("get_consumer_info(queue text, consumer text)", _INFO, _CONSUMER_INFO, READER),
    ("get_batch_info(batch_id bigint)", "record",
     "queue_name text, consumer_name text, batch_start timestamptz, batch_end timestamptz,"
     " prev_tick_id bigint, tick_id bigint, lag interval, seq_start bigint, seq_end bigint", READER),
    # dead letters
    ("event_dead(batch_id bigint, event_id bigint, reason text, ev_time timestamptz, ev_txid xid8,"
     " ev_retry integer, ev_type text, ev_data text, ev_extra1 text default null,"
     " ev_extra2 text default null, ev_extra3 text default null, ev_extra4 text default null)",
     "integer", "", ADMIN),
    ("dlq_inspect(queue text, limit_count integer default 100)", "setof pgque.dead_letter", "", READER),
    ("dlq_replay(dead_letter_id bigint)", "bigint", "", WRITER),
    ("dlq_replay_all(queue text)", "record", "replayed bigint, failed bigint, first_error text", WRITER),
    ("dlq_purge(queue text, older_than interval default '30 days')", "integer", "", ADMIN),
    # primitives
    ("insert_event(queue_name text, ev_type text, ev_data text)", "bigint", "", WRITER),
    ("insert_event(queue_name text, ev_type text, ev_data text, ev_extra1 text, ev_extra2 text,"
     " ev_extra3 text, ev_extra4 text)", "bigint", "", WRITER),
    ("register_consumer(queue_name text, consumer_id text)", "integer", "", READER),
    ("register_consumer_at(queue_name text, consumer_name text, tick_pos bigint)", "integer", "", READER),
    ("unregister_consumer(queue_name text, consumer_name text)", "integer", "", READER),
    ("next_batch(queue_name text, consumer_name text)", "bigint", "", READER),
    ("next_batch_info(queue_name text, consumer_name text)", "record", _BATCH_INFO, READER),
    ("next_batch_custom(queue_name text, consumer_name text, min_lag interval, min_count integer,"
     " min_interval interval)", "record", _BATCH_INFO, READER),
    ("get_batch_events(batch_id bigint)", "setof record", _EVENTS, READER),
    ("get_batch_cursor(batch_id bigint, cursor_name text, quick_limit integer)",
     "setof record", _EVENTS, ADMIN),
    ("get_batch_cursor(batch_id bigint, cursor_name text, quick_limit integer, extra_where text)",
     "setof record", _EVENTS, ADMIN),
    ("finish_batch(batch_id bigint)", "integer", "", READER),
    ("event_retry(batch_id bigint, event_id bigint, retry_time timestamptz)", "integer", "", READER),
    ("event_retry(batch_id bigint, event_id bigint, retry_seconds integer)", "integer", "", READER),
    ("batch_retry(batch_id bigint, retry_seconds integer)", "integer", "", ADMIN),
    # change capture
    ("jsontriga()", "trigger", "", ADMIN),
    ("logutriga()", "trigger", "", ADMIN),
    ("sqltriga()", "trigger", "", ADMIN),
    # delayed delivery, and what the specification adds for tests
    ("send_at(queue text, type text, payload jsonb, deliver_at timestamptz)", "bigint", "", WRITER),
    ("test_send(queue text, payload jsonb)", "bigint", "", ADMIN),
    ("test_consume(queue text, consumer text, expected_type text)", "pgque.message", "", ADMIN),
    ("assert_empty(queue text)", "boolean", "", ADMIN),
    ("assert_dlq_empty(queue text)", "boolean", "", ADMIN),
)

# Not in the reference, but granted beyond the admins: what applications log, and what the triggers of
# change capture call with the rights of whoever changes a table.
UNDOCUMENTED_GRANTS = {
    "log_event(text,text,text,jsonb)": BOTH,
    "capture_sql(text,text[],text,text,text,oid)": WRITER,
    "row_change_sql(text,text,text[],text[])": WRITER,
    "row_json_sql(text,text[],text[])": WRITER,
    "row_text_sql(text,text[])": WRITER,
    "row_url_sql(text,text[])": WRITER,
    "url_encode(text)": WRITER,
}

COLUMNS_OF_DEAD_LETTER = (
    "dl_id bigint", "dl_queue_id integer", "dl_consumer_id integer", "dl_time timestamp with time zone",
    "dl_reason text", "ev_id bigint", "ev_time timestamp with time zone", "ev_txid xid8", "ev_retry integer",
    "ev_type text", "ev_data text", "ev_extra1 text", "ev_extra2 text", "ev_extra3 text", "ev_extra4 text",
)
COLUMNS_OF_MESSAGE = (
    "msg_id bigint", "batch_id bigint", "type text", "payload text", "retry_count integer",
    "created_at timestamp with time zone", "extra1 text", "extra2 text", "extra3 text", "extra4 text",
)


def _in_catalogue_terms(text: str) -> str:
    """Types and defaults as PostgreSQL prints them."""
    text = text.replace("timestamptz", "timestamp with time zone").replace("float8", "double precision")
    text = re.sub(r"(text|interval) default null", r"\1 DEFAULT NULL::\1", text)
    text = re.sub(r"interval default ('[^']+')", r"interval DEFAULT \1::interval", text)
    text = text.replace("default", "DEFAULT")
    return text.replace("'60 seconds'", "'00:01:00'")


def _as_catalogued(function: str, result: str, columns: str) -> tuple[str, str]:
    """(name(arguments with the result's columns), result), as the query of test_reference.py gives them."""
    name, arguments = function.removesuffix(")").split("(", 1)
    parts = [arguments] if arguments else []
    if columns and result != "table":
        parts += [f"OUT {column}" for column in columns.split(", ")]
    what = f"TABLE({columns})" if result == "table" else result.replace("setof", "SETOF")
    return f"{name}({_in_catalogue_terms(', '.join(parts))})", _in_catalogue_terms(what)


def documented() -> dict[str, str]:
    """Result by function, with names and defaults of its arguments."""
    return dict(_as_catalogued(function, result, columns) for function, result, columns, _ in _FUNCTIONS)


def documented_grants() -> dict[str, str]:
    """Role by function, the way `regprocedure` prints it, without the schema."""
    return {_signature(function): role for function, _, _, role in _FUNCTIONS} | UNDOCUMENTED_GRANTS


def _signature(function: str) -> str:
    name, arguments = function.removesuffix(")").split("(", 1)
    without_defaults = re.sub(r" default [^,]+", "", arguments)
    types = [argument.split(" ", 1)[1] for argument in without_defaults.split(", ") if argument]
    return _in_catalogue_terms(f"{name}({','.join(types)})")
