"""A line means the same however it is written, and whatever was read before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pgque_pipeline.otlp import Parser
from tests.pipeline import otlp_lines as otlp

TS = 1_782_864_000_000_000
COMPACT, SPACED = (",", ":"), (", ", ": ")


def parser() -> Parser:
    return Parser(TS * 1000 + 1, lambda _: False)


def gauge(attributes: list[Any], **rest: Any) -> dict[str, Any]:
    return {"attributes": attributes, "timeUnixNano": str(TS * 1000), "asDouble": 1.5} | rest


def line(point: dict[str, Any], separators: tuple[str, str]) -> bytes:
    text = otlp.line([otlp.gauge("m", [point])])
    return json.dumps(json.loads(text), separators=separators).encode()


@pytest.mark.parametrize("separators", [COMPACT, SPACED])
def test_attributes_that_python_calls_equal_are_told_apart(separators: tuple[str, str]) -> None:
    values = [{"doubleValue": 1}, {"doubleValue": 1.0}, {"doubleValue": True}]
    found = parser()
    for value in values:
        found.line(line(gauge([{"key": "size", "value": value}]), separators))
    told = [found.identities[series or 0].attributes for series in found.columns.series]
    assert [dict(attributes)["size"] for attributes in told] == ["1", "1.0", "true"]


@pytest.mark.parametrize("separators", [COMPACT, SPACED])
def test_a_time_is_judged_by_itself_and_not_by_what_equals_it(separators: tuple[str, str]) -> None:
    whole, broken = TS * 1000, float(TS * 1000)
    found = parser()
    for given in (whole, broken):
        found.line(line(gauge([], timeUnixNano=given), separators))
    for given in (broken, whole):
        found.line(line(gauge([], timeUnixNano=given), separators))
    assert found.columns.reason == [None, "no time", "no time", None]


@pytest.mark.parametrize("bound", ["NaN", "Infinity", "-Infinity"])
def test_a_bound_without_end_is_refused(bound: str) -> None:
    point = otlp.point({}, TS, count="2", bucketCounts=["1", "1"], explicitBounds=[bound])
    found = parser()
    found.line(otlp.line([otlp.histogram("h", [point])]).encode())
    assert found.columns.reason == ["a bound that is not finite"]
