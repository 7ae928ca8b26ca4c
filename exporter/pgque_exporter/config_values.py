"""What the parts of the configuration have in common: durations, files, and how a mistake is worded."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from pgque_exporter import yaml_lines
from pgque_exporter.errors import UserError

Where = Callable[[yaml_lines.Path], str]  # from the path of a value to a place that a person can find
Models = Mapping[tuple[str, ...], type[BaseModel]]  # by the names on the way to them


class RawModel(BaseModel):
    """Raw input: no key unknown, no type guessed, no value in an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHORTEST, _LONGEST = 0.01, 86400.0


def parse_duration(text: object) -> float:
    """Seconds of `500ms`, `15s`, `1m`, `2h`; ValueError for anything else."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PydanticCustomError(
            "duration",
            "{given} is not a duration|write a number with ms, s, m or h, such as 15s",
            {"given": quote(text)},
        )
    seconds = float(match[1]) * _SECONDS[match[2]]
    if not _SHORTEST <= seconds <= _LONGEST:
        raise PydanticCustomError(
            "duration", "{given} is out of range|choose something from 10ms to 24h", {"given": quote(text)}
        )
    return seconds


Duration = Annotated[float, BeforeValidator(parse_duration)]


def quote(value: object) -> str:
    """A given value as an error may repeat it."""
    return repr(value if isinstance(value, str) else str(value))[:80]


def readable(name: str, where: str) -> Path:
    """The path of a file that can be read now; UserError if it can't."""
    path = Path(name)
    try:
        path.read_bytes()
    except OSError as error:
        raise UserError(
            f"can't read {name}: {error.strerror}", where=where, hint="check the path and its permissions"
        ) from None
    return path


_SIMPLE = {
    "missing": "is missing",
    "string_type": "must be text, in quotes",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least 1",
    "less_than_equal": "must be at most 100,000,000",
    "list_type": "must be a list",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to texts",
    "model_type": "must hold `key: value` lines",
    "too_short": "needs at least one entry",
}
_FREE_NAMES = ("headers", "labels")  # mappings whose keys are the user's own


def first_error(
    error: ValidationError, where: Where, models: Models, *, within: yaml_lines.Path = ()
) -> UserError:
    """What to tell a person about the first of the mistakes that pydantic found.

    `within` is the path of what was validated, where that isn't the whole configuration.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    place = where(first["loc"])
    path = (*within, *first["loc"])
    key = next((str(step) for step in reversed(path) if isinstance(step, str)), "")
    for free in _FREE_NAMES:
        if free in path:  # the name of a header or label alone would say too little
            steps = path if path[0] == "otlp" else path[path.index(free) :]
            key = ".".join(str(step) for step in steps if step != "[key]")
    if first["type"] in ("extra_forbidden", "invalid_key"):
        model = models[tuple(step for step in path[:-1] if isinstance(step, str))]
        known = sorted(model.model_fields)
        close = difflib.get_close_matches(str(path[-1]), known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
        return UserError(f"unknown key {path[-1]!r}", where=place, hint=hint)
    if first["type"] == "literal_error":
        return UserError(f"{key} must be {first['ctx']['expected']}", where=place)
    if first["type"] in _SIMPLE:
        return UserError(f"{key or 'the configuration'} {_SIMPLE[first['type']]}", where=place)
    what, _, hint = first["msg"].partition("|")
    return UserError(f"{key}: {what}", where=place, hint=hint or None)
