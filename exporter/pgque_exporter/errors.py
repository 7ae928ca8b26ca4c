"""The one error a person sees: what is wrong, where, and what to do about it."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that the person at the keyboard can mend.

    Printed as one line without a traceback; the process then exits with `exit_code`.
    The text must hold no secret: build it from names and positions, never from a raw DSN.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.hint[0].upper()}{self.hint[1:]}" if self.hint else text
