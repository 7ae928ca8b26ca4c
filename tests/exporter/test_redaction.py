from __future__ import annotations

import io
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from pgque_exporter.redaction import RedactingFormatter, Redactor

# A connection string, and what a message might quote of it. `ter2` ends every password.
QUOTED = [
    ("postgresql://u:hunter2@h/d", "hunter2"),
    ("postgresql://u:hunter2@h/d", "postgresql://u:hunter2@h/d"),
    ("postgres://u:hunt%40er2@h/d", "hunt%40er2"),
    ("postgres://u:hunt%40er2@h/d", "hunt@er2"),
    ("postgresql://u:hun@ter2@h/d", 'failed to resolve host "ter2@h"'),
    ("postgresql://u:hun/ter2@h/d", 'invalid port number: "hun", database "ter2@h/d"'),
    ("postgresql://u:hun%zzter2@h/d", 'invalid percent-encoded token: "hun%zzter2"'),
    ("postgresql://u:hunter2:5432@h:1/d", "hunter2:5432"),
    ("postgresql://h/d?user=u&password=hunter2", "hunter2"),
    ("host=h password=hunter2", 'password "hunter2" is wrong'),
    ("host=h password = 'hun ter2' user=u", "password = 'hun ter2'"),
    (r"host=h password='hun\'ter2'", r"hun\'ter2"),
    (r"host=h password='hun\'ter2'", "hun'ter2"),
    ("host=h password=hunter2 nonsense", "hunter2"),
    ("host=h password='hunter2", "hunter2"),
    ("postgresql://h/d?password=hun&er2", 'missing key/value separator "=" in URI query parameter: "er2"'),
    ("postgresql://u:hun@a,er2@h/d", "failed to resolve host 'er2@h'"),
    ("host=h password=hun er2", 'missing "=" after "er2" in connection info string'),
    ("host=h sslpassword=hunter2", "hunter2"),
    ("", "password=hunter2 of somebody else"),
    ("", "postgresql://u:hunter2@h of somebody else"),
]


@pytest.mark.parametrize(("dsn", "message"), QUOTED)
def test_no_piece_of_a_password_survives(dsn: str, message: str) -> None:
    redact = Redactor()
    redact.add_dsn(dsn)
    shown = redact(f"connection failed: {message} (host h)")
    assert "hun" not in shown
    assert "er2" not in shown
    assert shown.startswith("connection failed: ")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=4))
def test_any_password_in_any_quoting_is_hidden(password: str) -> None:
    dsn = make_conninfo(host="h", user="someone", password=password)
    redact = Redactor()
    redact.add_dsn(dsn)
    assert password not in redact(f"before {password} after").replace("before", "").replace("after", "")
    assert redact(f"{dsn}").count("***")


def test_a_short_password_is_hidden_where_it_stands_alone() -> None:
    redact = Redactor(["ab"])
    assert redact('password "ab" of cab') == 'password "***" of cab'


def test_text_without_secrets_is_left_alone() -> None:
    redact = Redactor(["hunter2"])
    text = (
        'connection to server at "127.0.0.1", port 5432 failed: password authentication failed for user "u"'
    )
    assert redact(text) == text


def test_log_records_and_tracebacks_are_redacted() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter(Redactor(["hunter2"])))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise ValueError("bad hunter2")
    except ValueError:
        log.exception("failed with %s", "hunter2")
    assert "hunter2" not in stream.getvalue()
    assert "ValueError: bad ***" in stream.getvalue()
