"""Snapshots as pages that Prometheus reads: text format 0.0.4 and OpenMetrics 1.0.0.

Both formats write a sample the same way and differ in the lines above it. So the samples of a
snapshot are rendered once, and a page is those bytes under one format's headings.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

from pgque_exporter.catalogue import Catalogue, Metric, MetricType
from pgque_exporter.slices import slices
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Labels, Snapshot


class Format(Enum):
    """An exposition format and its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_Shape = tuple[Labels, tuple[float, ...]]  # of a histogram's series: labels and bounds

# --- samples -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Written:
    """A family's lines; `prefixes` begin with the newline that ends the line before."""

    family: Family
    prefixes: Sequence[str]
    lines: bytes


class SampleWriter:
    """Renders the samples of one target, remembering the text before each value.

    Only what the last snapshot had is remembered, so that churn can't fill the memory.
    """

    def __init__(self) -> None:
        self._written: dict[str, _Written] = {}
        self._histograms: dict[str, dict[_Shape, Sequence[str]]] = {}

    def samples(self, snapshot: Snapshot) -> Mapping[str, bytes]:
        """The sample lines of each family, by the metric's OpenTelemetry name."""
        before = self._written
        self._written = {}
        for family in snapshot.families:
            name = family.metric.name
            self._written[name] = _written(family, before.get(name))
        rendered = {name: written.lines for name, written in self._written.items()}
        rendered.update(self._histogram_samples(snapshot))
        return rendered

    def _histogram_samples(self, snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
        known = self._histograms
        self._histograms = {}
        for family in snapshot.histograms:
            name = family.metric.name
            before = known.get(name, {})
            shapes = self._histograms[name] = {}
            lines: list[str] = []
            for series in family.series:
                shape = (series.labels, series.bounds)
                prefixes = before.get(shape) or histogram_prefixes(family.metric, series)
                shapes[shape] = prefixes
                lines.append(histogram_lines(prefixes, series))
            yield name, "".join(lines).encode()


def _written(family: Family, before: _Written | None) -> _Written:
    """A family's lines; what is the same as before isn't written again."""
    if before is not None and before.family == family:
        return before
    if before is not None and before.family.labels == family.labels:
        prefixes = before.prefixes
    else:
        old = dict(zip(before.family.labels, before.prefixes, strict=True)) if before is not None else {}
        name = family.metric.prometheus_name
        prefixes = [old.get(labels) or "\n" + sample_prefix(name, labels) for labels in family.labels]
    lines = [
        _lines(prefixes[part], family.values[part], family.texts[part] if family.texts is not None else None)
        for part in slices(len(prefixes))
    ]
    return _Written(family, prefixes, b"".join(lines))


def _lines(prefixes: Sequence[str], values: Sequence[float], texts: Sequence[str] | None) -> bytes:
    pieces = [""] * (2 * len(prefixes))
    pieces[::2] = prefixes
    pieces[1::2] = texts if texts is not None else map(repr, values)
    # No label value has a newline in it, so this shortens numbers alone.
    return f"{''.join(pieces)}\n".replace(".0\n", "\n").removeprefix("\n").encode()


def sample_prefix(name: str, labels: Labels) -> str:
    """A sample line up to the value; label values escaped as both formats want it."""
    if not labels:
        return f"{name} "
    inside = ",".join(f'{label}="{escape_label(value)}"' for label, value in labels)
    return f"{name}{{{inside}}} "


def escape_label(value: str) -> str:
    """A label value as it may stand between double quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    text = repr(float(value))
    return text.removesuffix(".0")


def family_samples(family: Family) -> bytes:
    """The sample lines of one family, for those too small to be worth remembering."""
    name = family.metric.prometheus_name
    return "".join(
        f"{sample_prefix(name, series.labels)}{number(series.value)}\n" for series in family.series
    ).encode()


def histogram_prefixes(metric: Metric, series: HistogramSeries) -> Sequence[str]:
    """The sample lines of one label set up to their values: a line per bucket, sum and count."""
    name, labels = metric.prometheus_name, series.labels
    bounds = [repr(bound) for bound in series.bounds] + ["+Inf"]
    return (
        *(sample_prefix(f"{name}_bucket", (*labels, ("le", bound))) for bound in bounds),
        sample_prefix(f"{name}_sum", labels),
        sample_prefix(f"{name}_count", labels),
    )


def histogram_lines(prefixes: Sequence[str], series: HistogramSeries) -> str:
    """The same lines with their values; buckets are cumulative."""
    cumulative = tuple(accumulate(series.counts))
    values = (*cumulative, number(series.total), cumulative[-1])
    return "".join(f"{prefix}{value}\n" for prefix, value in zip(prefixes, values, strict=True))


def histogram_samples(family: HistogramFamily) -> bytes:
    """The sample lines of one histogram, for those too small to be worth remembering."""
    return "".join(
        histogram_lines(histogram_prefixes(family.metric, series), series) for series in family.series
    ).encode()


# --- pages ---------------------------------------------------------------------------------------

_UNIT_WORDS = {"s": "seconds", "By": "bytes"}


def heading(metric: Metric, form: Format, others: Container[str] = ()) -> bytes:
    """The lines above a family's samples; `others` are the OpenTelemetry names of all families."""
    name, kind = metric.prometheus_name, str(metric.type)
    text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    unit = ""
    if form is Format.OPENMETRICS:
        text = text.replace('"', r"\"")
        if metric.type is MetricType.COUNTER:
            # A counter's family has the name without the suffix. Where a gauge has that, readers would
            # find it twice and refuse the page: then the counter is a number of no known type.
            if metric.name.removesuffix("_total") in others:
                kind = "unknown"
            else:
                name = name.removesuffix("_total")
        word = _UNIT_WORDS.get(metric.unit)
        # OpenMetrics wants the unit named only where the name ends in it.
        if word is not None and name.endswith(f"_{word}"):
            unit = f"# UNIT {name} {word}\n"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{unit}".encode()


def page_parts(
    catalogue: Catalogue, targets: Sequence[Mapping[str, bytes]], form: Format
) -> Sequence[bytes]:
    """A page of several targets: each family once, in the catalogue's order, with everyone's samples."""
    parts: list[bytes] = []
    for metric in catalogue:
        samples = [target[metric.name] for target in targets if target.get(metric.name)]
        if samples:
            parts.append(heading(metric, form, catalogue.metrics))
            parts.extend(samples)
    return parts
