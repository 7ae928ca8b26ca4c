"""Rows with any labels and values, from the text that a database sends to a page that others read.

Ten thousand pages, each read back by Prometheus' own Python parsers of the two formats.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pgque_exporter.assembly import Assembler
from pgque_exporter.catalogue import MetricType, Source
from pgque_exporter.config import Limits, TargetConfig
from pgque_exporter.exposition import Format, SampleWriter, page_parts
from pgque_exporter.label_sets import CONTRACT_LABELS
from pgque_exporter.limits import SeriesBudget, SeriesLimit
from pgque_exporter.pack import SEPARATOR, MetricRows, Pack, PackRows
from pgque_exporter.snapshot import Snapshot
from tests.exporter.harness import CATALOGUE

EXAMPLES, POLLS = 1000, 5  # and two pages each
LIMITS = Limits(label_length=30)
METRICS = [
    metric
    for metric in CATALOGUE
    if metric.source is not Source.SERVICE
    and metric.type is not MetricType.HISTOGRAM
    and not metric.name.startswith("pgque.queue.health")  # which the service completes
]

# What a jsonb string can hold, with more than its share of what a format could trip over.
TEXT = st.text(
    st.one_of(
        st.sampled_from("\"\\\n{}=,# \t\r\u2028nN'"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=35,
)
NAMES = st.one_of(st.sampled_from([*CONTRACT_LABELS, "Queue", "__name__", "database", "engine"]), TEXT)
LABELS = st.one_of(
    st.fixed_dictionaries({"queue": TEXT}),
    st.fixed_dictionaries({"queue": TEXT, "consumer": TEXT}),
    st.dictionaries(NAMES, st.one_of(TEXT, TEXT, st.none(), st.integers(), st.lists(TEXT)), max_size=4),
)
VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["NaN", "Infinity", "-0", "1e400", "", "0x1", "1_0", "٣", None]),
)
ROW = st.tuples(st.sampled_from(METRICS).map(lambda metric: metric.name), LABELS.map(json.dumps), VALUES)
POLL = st.lists(ROW, min_size=1, max_size=2)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def assembler() -> Assembler:
    limit = SeriesLimit("shop", LIMITS, SeriesBudget(LIMITS.series))
    return Assembler(TargetConfig("shop", "", limits=LIMITS, history=True), CATALOGUE, limit)


def snapshot_of(rows: Sequence[tuple[str, str, str | None]], assembler: Assembler) -> Snapshot:
    grouped: dict[str, tuple[list[str], list[str]]] = {}
    for name, labels, value in rows:
        texts, values = grouped.setdefault(name, ([], []))
        texts.append(labels)
        values.append(value or "")
    pack = Pack("toy_observability", "toy", "1", "1", (), ())
    metrics = [
        MetricRows(name, len(texts), SEPARATOR.join(texts), SEPARATOR.join(values))
        for name, (texts, values) in grouped.items()
    ]
    return assembler.assemble([PackRows(pack, metrics)], 1000.0, 0.0)


def expected(shot: Snapshot) -> Samples:
    return {
        (family.metric.prometheus_name, frozenset(series.labels)): series.value
        for family in shot.families
        for series in family.series
    }


def read_back(families: Iterable[Any]) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def usable(rows: Sequence[tuple[str, str, str | None]]) -> Counter[str]:
    """Rows by metric that nobody could have a reason to drop, worked out anew."""
    found: dict[str, set[frozenset[tuple[str, str]]]] = {}
    for name, text, value in rows:
        labels: Mapping[str, Any] = json.loads(text)
        metric = CATALOGUE[name]
        allowed = all(
            key in CONTRACT_LABELS and isinstance(given, str) and len(given) <= LIMITS.label_length
            and (key in metric.labels or not given)
            for key, given in labels.items()
        )  # fmt: skip
        if allowed and is_finite(value) and (metric.type is MetricType.GAUGE or str(value)[0] != "-"):
            found.setdefault(name, set()).add(frozenset((k, v) for k, v in labels.items() if v))
    return Counter({name: len(sets) for name, sets in found.items()})


def is_finite(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


pages: Counter[Format] = Counter()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(polls=st.lists(POLL, min_size=POLLS, max_size=POLLS))
def _any_rows_read_back(polls: list[list[tuple[str, str, str | None]]]) -> None:
    shots, writer = assembler(), SampleWriter()
    for rows in polls:
        shot = snapshot_of(rows, shots)
        wanted = expected(shot)
        assert len(wanted) + sum(shot.dropped.values()) == len(rows), "each row is on the page or counted"
        for name, least in usable(rows).items():
            assert sum(key[0] == CATALOGUE[name].prometheus_name for key in wanted) >= least
        samples = writer.samples(shot)
        text = b"".join(page_parts(CATALOGUE, [samples], Format.TEXT)).decode()
        assert read_back(parse_text(text)) == wanted
        pages[Format.TEXT] += 1
        openmetrics = b"".join(page_parts(CATALOGUE, [samples], Format.OPENMETRICS)).decode() + "# EOF\n"
        assert read_back(parse_openmetrics(openmetrics)) == wanted
        pages[Format.OPENMETRICS] += 1


def test_ten_thousand_pages_read_back() -> None:
    pages.clear()
    _any_rows_read_back()
    assert pages.total() >= 10_000
