"""Objectives from a file of the user's: whatever is wrong in it is told by file, line and key."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from pgque_exporter import catalogue, yaml_lines
from pgque_exporter.catalogue import Metric, MetricType
from pgque_exporter.config_values import RawModel, Where, first_error, quote
from pgque_exporter.errors import UserError
from pgque_pipeline.settings import Objective, Ratio, Threshold

_LONGEST_NAME = 100
# Beside these, labels tell what is observed: only counts of the same thing add up.
_OF_CHECKS = {"check", "state"}
_KINDS = "write metric and most for a share of samples, or good and bad for a share of events"


def read(path: Path) -> tuple[Objective, ...]:
    """The objectives of a YAML file; a mistake in it is a UserError."""
    document = yaml_lines.read(path, "the objectives")
    try:
        raw = _LIST.validate_python(document.data)
    except ValidationError as error:
        raise first_error(error, document.where, {_PLACE: _RawObjective}, within=_PLACE) from None
    metrics = catalogue.load()
    known = {name: metric for metric in metrics for name in (metric.name, metric.prometheus_name)}
    found: dict[str, Objective] = {}
    for number, one in enumerate(raw):
        if one.name in found:
            raise UserError(
                f"name: {one.name!r} stands here a second time",
                where=document.where((number, "name")),
                hint="give each objective a name of its own",
            )
        found[one.name] = _objective(one, known, partial(_where, document, number))
    return tuple(found.values())


def _where(document: yaml_lines.Document, number: int, path: yaml_lines.Path) -> str:
    return document.where((number, *path))


# --- raw input -----------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # isfinite() can't tell of a whole number that is larger


def _name(text: str) -> str:
    if not (text.strip() and len(text) <= _LONGEST_NAME and text.isprintable()):
        raise PydanticCustomError(
            "name",
            "{given} is no name|write 1 to {longest} printable characters",
            {"given": quote(text), "longest": _LONGEST_NAME},
        )
    return text


def _most(value: Any) -> Any:
    if not _is_number(value) or value < 0:
        raise PydanticCustomError(
            "most", "{given} is not a number of 0 or more|no metric is below 0", {"given": quote(value)}
        )
    return value


def _target(value: Any) -> Any:
    if not _is_number(value) or not 0 < value < 1:
        raise PydanticCustomError(
            "target", "{given} is not between 0 and 1|write 0.999 for 99.9 %", {"given": quote(value)}
        )
    return value


class _RawObjective(RawModel):
    name: Annotated[str, AfterValidator(_name)]
    target: Annotated[float, BeforeValidator(_target)]
    metric: str | None = None
    most: Annotated[Any, BeforeValidator(_most)] = None
    good: str | None = None
    bad: str | None = None


_LIST = TypeAdapter(Annotated[list[_RawObjective], Field(min_length=1)])
_PLACE = ("objectives",)  # what the list is called in a mistake


# --- from raw to ready ---------------------------------------------------------------------------


def _objective(raw: _RawObjective, known: Mapping[str, Metric], where: Where) -> Objective:
    given = {*raw.model_fields_set} & {"metric", "most", "good", "bad"}
    if not given:
        raise UserError(f"{raw.name} says nothing of what is measured", where=where(()), hint=_KINDS)
    kind = ("metric", "most") if given & {"metric", "most"} else ("good", "bad")
    if strange := sorted(given - {*kind}):
        raise UserError(f"{strange[0]} doesn't go with {kind[0]}", where=where((strange[0],)), hint=_KINDS)
    if missing := [key for key in kind if getattr(raw, key) is None]:
        raise UserError(f"{missing[0]} is missing", where=where(()), hint=_KINDS)
    if kind == ("metric", "most"):
        metric = _metric(raw, "metric", MetricType.GAUGE, known, where)
        return Threshold(raw.name, metric.name, raw.most, raw.target)
    good, bad = (_metric(raw, key, MetricType.COUNTER, known, where) for key in kind)
    if good is bad:
        raise UserError("good and bad are the same", where=where(("bad",)), hint="name two counters")
    if {*good.labels} - _OF_CHECKS != {*bad.labels} - _OF_CHECKS:
        raise UserError(
            f"good is counted by {_listed(good)}, bad by {_listed(bad)}",
            where=where(("bad",)),
            hint="name two counters of the same thing",
        )
    return Ratio(raw.name, good.name, bad.name, raw.target)


def _metric(
    raw: _RawObjective, key: str, kind: MetricType, known: Mapping[str, Metric], where: Where
) -> Metric:
    """The metric that a key names; one that nobody has heard of would never have data."""
    name = getattr(raw, key)
    metric = known.get(name)
    if metric is None:
        fitting = [text for text, one in known.items() if one.type is kind]
        close = difflib.get_close_matches(name, fitting, 1)
        raise UserError(
            f"{key}: unknown metric {quote(name)}",
            where=where((key,)),
            hint=f"did you mean {close[0]}?" if close else "the README's tables list all metrics",
        )
    if metric.type is not kind:
        raise UserError(
            f"{key}: {metric.name} is a {metric.type}, not a {kind}",
            where=where((key,)),
            hint="metric and most are for gauges, good and bad for counters",
        )
    return metric


def _listed(metric: Metric) -> str:
    return " and ".join(metric.labels) or "database"
