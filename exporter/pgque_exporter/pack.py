"""An installed pack, and the rows that one poll got from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SEPARATOR = "\x1e"  # no JSON text and no number has this character


@dataclass(frozen=True, slots=True)
class Pack:
    """An installed pack, and what it says about itself."""

    schema: str
    engine: str
    engine_version: str
    pack_version: str
    queue_checks: tuple[str, ...]  # what it checks of every queue
    consumer_checks: tuple[str, ...]  # and of every consumer


@dataclass(frozen=True, slots=True)
class MetricRows:
    """All rows of one metric by columns, each column one text; an unknown value and no labels are empty.

    One text for thousands of rows: taking it apart here is a fraction of the work of as many fields.
    """

    name: str | None
    count: int
    labels: str
    values: str

    def columns(self) -> tuple[Sequence[str], Sequence[str]]:
        """Label sets and values, as many as rows; what can't be taken apart tells nothing of any row."""
        labels, values = self.labels.split(SEPARATOR), self.values.split(SEPARATOR)
        return (
            labels if len(labels) == self.count else [SEPARATOR] * self.count,
            values if len(values) == self.count else [""] * self.count,
        )

    @property
    def plain_numbers(self) -> bool:
        """Whether the database wrote no value with anything but digits, a sign and a point."""
        digits = self.values.replace(SEPARATOR, "").replace("-", "").replace(".", "")
        return digits.isascii() and digits.isdecimal()


@dataclass(frozen=True, slots=True)
class PackRows:
    """What one pack returned. `health` are (queue, check, status, detail) of its checks that aren't ok."""

    pack: Pack
    metrics: Sequence[MetricRows]
    health: Sequence[tuple[str | None, ...]] = ()
