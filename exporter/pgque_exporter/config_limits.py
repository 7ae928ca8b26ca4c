"""How much of what databases say is exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pgque_exporter.config_values import RawModel


@dataclass(frozen=True)
class Limits:
    """How much is exported. Series are counted as on a page: a line each.

    series             of all targets together
    series_per_target  of one
    labels             of one series, `engine` and `database` included
    label_length       characters of a label's value
    """

    series: int = 500_000
    series_per_target: int = 100_000
    labels: int = 30
    label_length: int = 1024


DEFAULT_LIMITS = Limits()

_Count = Annotated[int, Field(ge=1, le=100_000_000)]


class RawLimits(RawModel):
    """The block `limits`."""

    series: _Count = Limits.series
    series_per_target: _Count = Limits.series_per_target
    labels: _Count = Limits.labels
    label_length: _Count = Limits.label_length
