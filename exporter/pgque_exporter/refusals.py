"""What a database refused to do, as an error for the person who asked for it."""

from __future__ import annotations

import psycopg
from psycopg import errors

from pgque_exporter.connection import Connection, classified
from pgque_exporter.errors import UserError
from pgque_exporter.redaction import Redactor, one_line
from pgque_exporter.terminal import printable


class Refused(UserError):
    """The database refused; the wish itself was fine. `absent`: the engine isn't in this database."""

    exit_code = 1

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, absent: bool = False
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.absent = absent


def refusal(error: psycopg.Error, connection: Connection, name: str, redact: Redactor) -> Refused:
    """The error for a statement that failed on this connection to the database called `name`."""
    message, where = error.diag.message_primary, printable(name)
    if message is None:  # no answer of the server: the connection broke
        broken = classified(error, redact)
        return Refused(broken.message, where=where, hint=broken.hint)
    hint = error.diag.message_hint
    if isinstance(error, errors.InsufficientPrivilege):
        user = connection.info.user
        hint = f"the user {user} may not do that: connect as the owner of the objects or as a superuser"
    elif isinstance(error, errors.LockNotAvailable):
        hint = "others are using these objects: nothing was changed, try again later"
    elif isinstance(error, errors.ReadOnlySqlTransaction):
        hint = "this is a standby or a read-only session: connect to the primary"
    absent = isinstance(error, errors.InvalidSchemaName)  # what packs raise then
    return Refused(one_line(message, redact), where=where, hint=hint, absent=absent)
