from __future__ import annotations

import gzip
import math
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric as ParsedMetric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pgque_exporter.body import Body, Encoding
from pgque_exporter.catalogue import Metric, MetricType, Source
from pgque_exporter.exposition import Format, SampleWriter, heading, histogram_samples, page_parts
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Series, Snapshot
from tests.exporter.harness import CATALOGUE, DEPTH, SENT, labels, snapshot

# Anything that a jsonb string can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NAMES = TEXTS.filter(bool)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def page(shot: Snapshot, form: Format) -> str:
    end = "# EOF\n" if form is Format.OPENMETRICS else ""
    return b"".join(page_parts(CATALOGUE, [SampleWriter().samples(shot)], form)).decode() + end


def parsed(text: str, form: Format) -> list[ParsedMetric]:
    return list(parse_openmetrics(text) if form is Format.OPENMETRICS else parse_text(text))


@pytest.mark.parametrize("form", Format)
@given(rows=st.dictionaries(NAMES, NUMBERS, min_size=1, max_size=5))
def test_any_label_value_and_number_reads_back(form: Format, rows: dict[str, float]) -> None:
    series = tuple(Series(labels(queue=queue), value) for queue, value in rows.items())
    shot = Snapshot("shop", 0, 0, (Family.of(DEPTH, series),), (), 0, {})
    [family] = parsed(page(shot, form), form)
    assert {sample.labels["queue"]: sample.value for sample in family.samples} == rows
    assert (family.name, family.type, family.documentation) == ("pgque_queue_depth", "gauge", DEPTH.help)


@pytest.mark.parametrize("form", Format)
@given(text=TEXTS)
def test_any_help_text_reads_back(form: Format, text: str) -> None:
    text = text.strip()
    metric = Metric("some.metric", MetricType.GAUGE, "1", (), Source.CONTRACT, text)
    end = "# EOF\n" if form is Format.OPENMETRICS else ""
    [family] = parsed(heading(metric, form).decode() + "some_metric 1\n" + end, form)
    assert family.documentation == text


def test_the_two_formats_byte_for_byte() -> None:
    shot = Snapshot(
        "shop",
        0,
        0,
        (
            Family.of(
                CATALOGUE["pgque.ticker.last_tick_age_seconds"], (Series(labels(queue='a"b\\c\nd'), 1.5),)
            ),
            Family.of(SENT, (Series(labels(queue="q"), 12),)),
        ),
        (),
        0,
        {},
    )
    samples = [
        'pgque_ticker_last_tick_age_seconds{engine="toy",database="shop",queue="a\\"b\\\\c\\nd"} 1.5',
        'pgque_message_sent_total{engine="toy",database="shop",queue="q"} 12',
    ]
    tick_help = CATALOGUE["pgque.ticker.last_tick_age_seconds"].help
    assert page(shot, Format.TEXT).splitlines() == [
        f"# HELP pgque_ticker_last_tick_age_seconds {tick_help}",
        "# TYPE pgque_ticker_last_tick_age_seconds gauge",
        samples[0],
        f"# HELP pgque_message_sent_total {SENT.help}",
        "# TYPE pgque_message_sent_total counter",
        samples[1],
    ]
    assert page(shot, Format.OPENMETRICS).splitlines() == [
        f"# HELP pgque_ticker_last_tick_age_seconds {tick_help}",
        "# TYPE pgque_ticker_last_tick_age_seconds gauge",
        "# UNIT pgque_ticker_last_tick_age_seconds seconds",
        samples[0],
        f"# HELP pgque_message_sent {SENT.help}",
        "# TYPE pgque_message_sent counter",
        samples[1],
        "# EOF",
    ]


def test_a_counter_beside_a_gauge_of_its_name_is_no_second_family() -> None:
    series = (Series(labels(queue="q"), 3),)
    gauge, counter = (CATALOGUE[f"pgque.message.dead_lettered{suffix}"] for suffix in ("", "_total"))
    shot = Snapshot("shop", 0, 0, (Family.of(gauge, series), Family.of(counter, series)), (), 0, {})
    text = page(shot, Format.OPENMETRICS)
    assert sorted((family.name, family.type) for family in parsed(text, Format.OPENMETRICS)) == [
        ("pgque_message_dead_lettered", "gauge"),
        ("pgque_message_dead_lettered_total", "unknown"),
    ]
    assert "# TYPE pgque_message_dead_lettered_total counter\n" in page(shot, Format.TEXT)


def test_families_of_several_targets_are_merged() -> None:
    one, two = SampleWriter().samples(snapshot(1, 2)), SampleWriter().samples(snapshot(3, metric=SENT))
    text = b"".join(page_parts(CATALOGUE, [one, two, one], Format.TEXT)).decode()
    assert text.count("# TYPE pgque_queue_depth gauge\n") == 1
    assert text.count("# TYPE") == 2
    assert text.count("pgque_queue_depth{") == 4


@pytest.mark.parametrize("form", Format)
def test_histograms_read_back(form: Format) -> None:
    metric = CATALOGUE["pgque.exporter.poll_duration_seconds"]
    series = HistogramSeries((("database", "shop"),), (0.1, 1.0), (3, 0, 2), 4.25)
    end = b"# EOF\n" if form is Format.OPENMETRICS else b""
    samples = histogram_samples(HistogramFamily(metric, (series,)))
    [family] = parsed((heading(metric, form) + samples + end).decode(), form)
    assert family.type == "histogram"
    values = {
        (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value for sample in family.samples
    }
    assert values == {
        ("bucket", "0.1"): 3,
        ("bucket", "1.0"): 3,
        ("bucket", "+Inf"): 5,
        ("sum", None): 4.25,
        ("count", None): 5,
    }


def test_histograms_of_a_snapshot_byte_for_byte() -> None:
    sizes = HistogramSeries(labels(queue="q", consumer="c"), (1.0, 10.0), (2, 0, 1), 1002.5)
    shot = Snapshot(
        "shop", 0, 0, (Family.of(SENT, (Series(labels(queue="q"), 3),)),), (), 0, {},
        (HistogramFamily(CATALOGUE["pgque.batch.size"], (sizes,)),),
    )  # fmt: skip
    given = 'engine="toy",database="shop",queue="q",consumer="c"'
    lines = [
        "# HELP pgque_batch_size " + CATALOGUE["pgque.batch.size"].help,
        "# TYPE pgque_batch_size histogram",
        f'pgque_batch_size_bucket{{{given},le="1.0"}} 2',
        f'pgque_batch_size_bucket{{{given},le="10.0"}} 2',
        f'pgque_batch_size_bucket{{{given},le="+Inf"}} 3',
        f"pgque_batch_size_sum{{{given}}} 1002.5",
        f"pgque_batch_size_count{{{given}}} 3",
    ]
    assert page(shot, Format.TEXT).splitlines()[3:] == lines
    writer = SampleWriter()
    assert writer.samples(shot) == writer.samples(shot), "the second time from what is remembered"


def test_bounds_that_change_are_not_remembered_wrongly() -> None:
    writer = SampleWriter()
    for bounds in ((1.0, 2.0), (1.0, 3.0), (5.0,)):
        series = HistogramSeries(labels(queue="q"), bounds, (1,) * (len(bounds) + 1), 1)
        family = HistogramFamily(CATALOGUE["pgque.batch.size"], (series,))
        shot = Snapshot("shop", 0, 0, (), (), 0, {}, (family,))
        assert writer.samples(shot)["pgque.batch.size"] == histogram_samples(family)
        assert sum(len(shapes) for shapes in writer._histograms.values()) == 1


@given(st.binary(max_size=5000), st.binary(max_size=300))
def test_gzip_is_one_member_whatever_the_tail(plain: bytes, tail: bytes) -> None:
    packed = Body.of([plain[:7], plain[7:]], Encoding.GZIP).page(tail, Encoding.GZIP)
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    assert stream.decompress(packed) + stream.flush() == plain + tail
    assert stream.eof
    assert stream.unused_data == b""
    assert gzip.decompress(packed) == plain + tail  # checks sum and length


def test_a_page_is_prepared_for_those_who_ask_for_it() -> None:
    body = Body.of([b"a", b"b"], Encoding.IDENTITY)
    assert [body.has(encoding) for encoding in Encoding] == [True, False]
    assert body.page(b"c", Encoding.IDENTITY) == b"abc"
    with pytest.raises(ValueError, match="gzip"):
        body.page(b"c", Encoding.GZIP)


def test_prefixes_of_series_that_went_away_are_forgotten() -> None:
    writer = SampleWriter()
    for number in range(50):
        series = (Series(labels(queue=f"q{number}"), 1.0),)
        writer.samples(Snapshot("shop", 0, 0, (Family.of(DEPTH, series),), (), 0, {}))
    assert sum(len(written.prefixes) for written in writer._written.values()) == 1


def test_numbers_keep_their_precision() -> None:
    values = (0.1, 1e300, 2**53 - 1, 123456789.123456, math.pi, 0.0, 5e-324)
    text = SampleWriter().samples(snapshot(*values))["pgque.queue.depth"].decode()
    assert [float(line.rpartition(" ")[2]) for line in text.splitlines()] == list(values)
    assert " 9007199254740991\n" in text
