"""The label sets of a database: JSON from its rows, made usable once and then known by its text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pgque_exporter.config_limits import Limits
from pgque_exporter.config_targets import TargetConfig
from pgque_exporter.snapshot import Labels

BOUND = "le"
SUBJECT_LABELS = ("engine", "database")  # which a row may name if it is history, of whatever database
CONTRACT_LABELS = (
    "queue", "consumer", "check", "state", "metric", "objective", "window", "table", BOUND,
)  # fmt: skip
INVALID_LABEL, LONG_LABEL, MANY_LABELS = "invalid_label", "label_too_long", "too_many_labels"


@dataclass(frozen=True, slots=True)
class LabelSet:
    """A label set with engine and database first, and the names that the row itself gave.

    reason  why it can't be used; None if it can
    """

    text: str
    labels: Labels
    names: frozenset[str]
    reason: str | None = None


class LabelSets:
    """Label sets of one engine in one database, each distinct text parsed once.

    It grows until told what is still in use: series that come and go must not fill the memory.
    """

    def __init__(self, engine: str, target: TargetConfig) -> None:
        self._subject = (("engine", engine), ("database", target.name))
        self._first = (*self._subject, *target.labels)
        self._own = target.labels
        self._limits = target.limits
        self._known: dict[str, LabelSet] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._names: dict[tuple[str, ...], frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, texts: Iterable[str]) -> list[LabelSet]:
        """The label set of each text."""
        known = self._known
        return [known.get(text) or self._add(text) for text in texts]

    def keep(self, texts: Iterable[str]) -> None:
        """Forget all but these."""
        known = self._known
        self._known = {text: known[text] for text in texts}
        self._pairs = {}

    def _add(self, text: str) -> LabelSet:
        found = self._known[text] = self._parse(text)
        return found

    def _parse(self, text: str) -> LabelSet:
        try:
            given = json.loads(text or "{}")
        except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, nested too deeply
            return _unusable(text, INVALID_LABEL)
        if not isinstance(given, dict) or not all(_is_label(*pair) for pair in given.items()):
            return _unusable(text, INVALID_LABEL)
        # An empty value is the same as no label to Prometheus, and so must not make a second series.
        names = tuple(name for name in (*SUBJECT_LABELS, *CONTRACT_LABELS) if given.get(name))
        # The same queue stands in many label sets: one pair for all of them is a third of the memory.
        own = tuple(self._pairs.setdefault(pair, pair) for pair in ((name, given[name]) for name in names))
        labels = (*self._first, *own)
        if names and names[0] in SUBJECT_LABELS:
            subject = dict(self._subject) | {name: given[name] for name in SUBJECT_LABELS if given.get(name)}
            others = (pair for pair in own if pair[0] not in SUBJECT_LABELS)
            labels = (*subject.items(), *self._own, *others)
        reason = excess(own, len(labels), self._limits)
        if reason is not None:
            return _unusable(text, reason)
        return LabelSet(text, labels, self._names.setdefault(names, frozenset(names)))


def excess(given: Labels, count: int, limits: Limits) -> str | None:
    """Why a series can't have the labels that a pack gave, `count` with ours; None if it can."""
    if any(len(value) > limits.label_length for _, value in given):
        return LONG_LABEL
    return MANY_LABELS if count > limits.labels else None


def _unusable(text: str, reason: str) -> LabelSet:
    return LabelSet(text, (), frozenset(), reason)


def _is_label(name: str, value: object) -> bool:
    if name not in (*SUBJECT_LABELS, *CONTRACT_LABELS) or not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which the type json lets pass and no page can hold
        return False
    return True
