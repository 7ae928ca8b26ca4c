"""Long work in slices.

One call that goes through a hundred thousand objects lets no other thread run until it returns, the
event loop's among them. Between two slices they can.
"""

from __future__ import annotations

from collections.abc import Iterator

_SLICE = 10_000  # about a millisecond of most things


def slices(length: int, each: int = _SLICE) -> Iterator[slice]:
    """Slices of at most `each` that together cover a sequence of this length."""
    for begin in range(0, length, each):
        yield slice(begin, begin + each)
