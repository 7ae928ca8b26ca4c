"""Whatever stands in a line of input: taken right, or in the quarantine with its file and reason."""

from __future__ import annotations

import gzip
import json
import struct
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pgque_pipeline import intake, reading
from pgque_pipeline.schemas import POINTS
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline import compare
from tests.pipeline import otlp_lines as otlp
from tests.pipeline.intake import points_and_series, taken_and_refused

NOW = datetime(2026, 7, 1, tzinfo=UTC)
TS = int(NOW.timestamp()) * 1_000_000
LABELS = {"engine": "pgque", "database": "shop", "queue": "orders"}


def gauge(ts: int = TS, **value: Any) -> str:
    return otlp.line([otlp.gauge("pgque.queue.depth", [otlp.point(LABELS, ts, **value)])])


def histogram(**fields: Any) -> str:
    point = otlp.point(LABELS, TS, **fields)
    return otlp.line([otlp.histogram("pgque.batch.size", [point])])


def metric(**fields: object) -> str:
    return otlp.line([{"name": "pgque.queue.depth", **fields}])


POINT = otlp.point(LABELS, TS, asDouble=1.0)

# Line -> the reason for which it, or its point, is refused.
REFUSED = {
    '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"na': "not a line of OTLP JSON",
    "no JSON at all": "not a line of OTLP JSON",
    '"a text"': "not a line of OTLP JSON",
    '{"resourceMetrics":{"resource":7}}': "not a line of OTLP JSON",
    gauge(asDouble="seven"): "not a line of OTLP JSON",
    '{"resourceLogs":[]}': "a line without resourceMetrics",
    metric(): "a metric without data",
    metric(summary={"dataPoints": [POINT]}): "summaries are not read",
    metric(exponentialHistogram={"dataPoints": [POINT]}): "exponential histograms are not read",
    otlp.line([otlp.gauge("", [POINT])]): "a metric without a name",
    metric(sum={"dataPoints": [POINT], "isMonotonic": True}): "no aggregation temporality",
    metric(sum={"dataPoints": [POINT], "aggregationTemporality": 1}): (
        "differences of a sum that may fall are not read"
    ),
    gauge(0, asDouble=1): "no time",
    gauge(TS + 2 * 86_400_000_000, asDouble=1): "a time in the future",
    gauge(1_000_000, asDouble=1): "a time before 2000",
    gauge(): "no value",
    gauge(asInt="many"): "no value",
    gauge(asDouble="NaN"): "not a finite value",
    gauge(asDouble="-Infinity"): "not a finite value",
    otlp.line([otlp.counter("c", [otlp.point(LABELS, TS, asInt="-1")])]): "a counter below 0",
    histogram(sum=1.0): "no count",
    histogram(count="2", bucketCounts=["1", "x"], explicitBounds=[1.0]): "a bucket without a count",
    histogram(count="2", bucketCounts=["2"], explicitBounds=[1.0]): "buckets that do not fit their bounds",
    histogram(count="3", bucketCounts=["1", "1"], explicitBounds=[1.0]): (
        "buckets that do not add up to the count"
    ),
    histogram(
        count="1", bucketCounts=["1", "0", "0"], explicitBounds=[2.0, 1.0]
    ): "bounds that do not ascend",
    histogram(count="1", sum="NaN"): "not a finite sum",
}


@pytest.mark.parametrize("name", ["metrics.json", "metrics.json.gz"])
def test_what_cannot_be_used_is_refused_with_its_reason(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    text = ("\n".join([*REFUSED, gauge(asDouble=1.5)]) + "\n\n").encode()
    file.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    points, refused = taken_and_refused(spark, tmp_path / "warehouse", [file], NOW)
    assert sorted(row["reason"] for row in refused) == sorted(REFUSED.values())
    assert {row["file"] for row in refused} == {str(file)}
    assert {row["text"] for row in refused if row["reason"].startswith("not a line")} == set([*REFUSED][:5])
    depth = [row for row in refused if row["reason"] == "a time before 2000"]
    assert json.loads(depth[0]["text"])["metric"] == "pgque.queue.depth"
    assert [row["value"] for row in points] == [1.5]


def test_a_point_is_taken_as_any_collector_writes_it(spark: SparkSession, tmp_path: Path) -> None:
    resource = {
        **otlp.RESOURCE,
        "service.instance.id": "host:1",
        "deployment.environment": "prod",
        "host.name": "a",
    }
    attributes = otlp.attributes({"queue": "orders", "messaging.consumer.group.name": "billing"})
    attributes.append({"key": "shard", "value": {"intValue": "7"}})
    attributes.append({"key": "hot", "value": {"boolValue": True}})
    body = {
        "timeUnixNano": TS * 1000 + 999,
        "startTimeUnixNano": str(TS * 1000 - 5000),
        "attributes": attributes,
    }
    counter = otlp.counter("pgque_message_acked_total", [{**body, "asInt": 12}])
    counter["sum"]["aggregationTemporality"] = "AGGREGATION_TEMPORALITY_CUMULATIVE"
    ended = otlp.gauge("pgque.queue.depth", [{**body, "flags": 1}])
    file = tmp_path / "metrics.json"
    lines = [otlp.line([counter, ended], resource | {"db.namespace": "shop"}), otlp.line([counter], resource)]
    file.write_text("\n".join(lines), "utf-8")
    (first, mark, other), _ = taken_and_refused(spark, tmp_path / "warehouse", [file], NOW)
    assert (first["metric"], first["kind"], first["temporality"]) == (
        "pgque.message.acked_total",
        "counter",
        "cumulative",
    )
    labels = ("engine", "database", "queue", "consumer", "check")
    assert [first[name] for name in labels] == [None, "shop", "orders", "billing", None]
    assert dict(first["attributes"]) == {"deployment.environment": "prod", "shard": "7", "hot": "true"}
    assert (first["ts"], first["start"], first["value"]) == (TS, TS - 5, 12.0)
    assert (mark["value"], mark["start"]) == (None, None)
    # Without a database the point belongs to its sender.
    assert dict(other["attributes"]) == dict(first["attributes"]) | {
        "service.name": "pgque-exporter",
        "service.instance.id": "host:1",
    }
    assert other["series_id"] != first["series_id"]


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


def framed(*messages: bytes) -> bytes:
    packed = [zstd(message) for message in messages]
    return b"".join(struct.pack(">I", len(message)) + message for message in packed)


def test_files_are_read_however_they_are_packed_and_named(spark: SparkSession, tmp_path: Path) -> None:
    texts = [gauge(TS + i, asDouble=float(i)).encode() for i in range(14)]
    contents = {
        "plain.json": texts[0] + b"\n" + texts[1],
        "weird [name] {a,b} *+%20é.json": texts[2] + b"\n",
        "packed.json.gz": gzip.compress(texts[3] + b"\n" + texts[4]),
        "packed.json": gzip.compress(texts[5] + b"\n"),
        "packed.json.zst": zstd(texts[6] + b"\n" + texts[7] + b"\n"),
        "collector.json": framed(texts[8], texts[9]),
        "plain-after-all.gz": texts[10] + b"\r\n",
        "empty.json": b"",
        "sub+folder/plain.json": texts[11],
        "_plain.json": texts[12],
        "plain._COPYING_": texts[13],
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in contents]
    found, _ = reading.opened(paths)
    files = {file for task in reading.shares(found) for file, texts in reading.read(task, print) if texts}
    assert files == {str(path) for path in paths if path.name != "empty.json"}
    points, refused = taken_and_refused(spark, tmp_path / "warehouse", paths, NOW)
    assert sorted(row["value"] for row in points) == [float(i) for i in range(14)]
    assert refused == []


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (gzip.compress(b"one\ntwo\n")[:-9], 0),
        (gzip.compress(b"one\ntwo\n") + b"rubbish", 2),
        (framed(b"one", b"two")[:-3], 1),
        (framed(b"one", b"two") + b"\x00\x00", 2),
        (framed(b"one") + struct.pack(">I", 4) + b"abcd", 1),
        (zstd(b"one\n" * 100)[:-4], 0),
    ],
    # Not by content: gzip puts the time into it, and every worker has to call a test the same.
    ids=["gzip torn", "gzip and more", "message torn", "length torn", "no message", "zstd torn"],
)
def test_a_packed_file_that_breaks_off_ends_with_what_was_wrong(
    tmp_path: Path, content: bytes, whole: int
) -> None:
    path = tmp_path / "packed"
    path.write_bytes(content)
    with path.open("rb") as file:
        found = [line for lines in reading.unpacked(file) for line in lines]
    assert found[:whole] == [b"one", b"two"][:whole]
    assert len(found) > whole
    assert b"unpacked" in found[-1] or b"breaks off" in found[-1]


def test_the_same_point_twice_is_one_and_of_two_values_the_larger_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.json"
    lines = [gauge(asDouble=2), gauge(asDouble=7), gauge(asDouble=2), gauge(flags=1), gauge(TS + 1, flags=1)]
    file.write_text("\n".join(lines), "utf-8")
    settled, _ = points_and_series(spark, tmp_path / "settled", [file], NOW)
    fresh = open_warehouse(tmp_path / "fresh", create=True)
    for _ in range(2):
        taken = intake.take(fresh, reading.lines(spark, [file]), intake.Rules(NOW))
        fresh.change(partial(intake.with_taken, taken=taken))
    for table in (settled, fresh.read(spark, POINTS)):
        assert [(row["ts"] - TS, row["value"]) for row in compare.rows(table)] == [(0, 7.0), (1, None)]
