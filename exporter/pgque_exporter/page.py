"""The page that is scraped: prepared when a poll ends, handed out when somebody asks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgque_exporter.body import Body, Encoding
from pgque_exporter.catalogue import Catalogue
from pgque_exporter.exposition import (
    Format,
    SampleWriter,
    family_samples,
    heading,
    histogram_samples,
    page_parts,
)
from pgque_exporter.snapshot import Snapshot
from pgque_exporter.state import TargetState
from pgque_exporter.telemetry import Telemetry, target_families

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All fresh snapshots as bytes. Past `valid_until`, a monotonic time, one of them is stale."""

    bodies: Mapping[Format, Body]
    valid_until: float


class Page:
    """Keeps the prepared page up to date.

    What a scrape waits for is the small tail: the state of the targets at that second, and the
    service's own counters.
    """

    def __init__(
        self, catalogue: Catalogue, states: Callable[[], Sequence[TargetState]], telemetry: Telemetry
    ) -> None:
        self._catalogue = catalogue
        self._states = states
        self._telemetry = telemetry
        self._writers: dict[str, SampleWriter] = {}
        self._samples: dict[str, tuple[Snapshot, Mapping[str, bytes]]] = {}
        self._dirty = asyncio.Event()
        self._building = asyncio.Lock()
        self._wanted: dict[Format, set[Encoding]] = {form: set() for form in Format}  # that were asked for
        self._prepared = Prepared({}, float("inf"))

    def refresh(self) -> None:
        """Ask for a new page; many such wishes during one build lead to one more build."""
        self._dirty.set()

    async def run(self) -> None:
        """Rebuild the page whenever a refresh was asked for, until cancelled."""
        while True:
            await self._dirty.wait()
            try:
                async with self._building:
                    await self._build()
            except Exception:
                log.exception("the metrics page could not be built")

    async def render(self, form: Format, encoding: Encoding) -> bytes:
        """The page at this moment. Stale data is never on it, even if no poll has ended since."""
        self._wanted[form].add(encoding)
        if self._lacks(form, encoding):
            async with self._building:
                if self._lacks(form, encoding):  # nobody else was faster
                    await self._build()
        return self._prepared.bodies[form].page(self._tail(form), encoding)

    def _lacks(self, form: Format, encoding: Encoding) -> bool:
        prepared = self._prepared
        body = prepared.bodies.get(form)
        return body is None or not body.has(encoding) or time.monotonic() >= prepared.valid_until

    async def _build(self) -> None:
        self._dirty.clear()  # before the states are read: a wish from now on wants another build
        wanted = {form: tuple(encodings) for form, encodings in self._wanted.items() if encodings}
        self._prepared = await asyncio.to_thread(self._prepare, self._states(), wanted, time.monotonic())

    def _prepare(
        self, states: Sequence[TargetState], wanted: Mapping[Format, Sequence[Encoding]], clock: float
    ) -> Prepared:
        fresh = [(state, snapshot) for state in states if (snapshot := state.fresh(clock)) is not None]
        targets = [self._samples_of(snapshot) for _, snapshot in fresh]
        for gone in self._samples.keys() - {state.name for state, _ in fresh}:
            del self._samples[gone], self._writers[gone]
        return Prepared(
            {
                form: Body.of(page_parts(self._catalogue, targets, form), *encodings)
                for form, encodings in wanted.items()
            },
            min((state.snapshot_clock + state.stale_after for state, _ in fresh), default=float("inf")),
        )

    def _samples_of(self, snapshot: Snapshot) -> Mapping[str, bytes]:
        name = snapshot.database
        known = self._samples.get(name)
        if known is None or known[0] is not snapshot:
            writer = self._writers.setdefault(name, SampleWriter())
            try:
                samples = writer.samples(snapshot)
            except Exception:  # it costs the target its place on the page, and the others nothing
                log.exception("%s: the samples of this poll could not be written", name)
                samples = {}
            known = self._samples[name] = (snapshot, samples)
        return known[1]

    def _tail(self, form: Format) -> bytes:
        families, histograms = self._telemetry.instruments()
        parts: list[bytes] = []
        for family in (*target_families(self._catalogue, self._states(), time.monotonic()), *families):
            parts += heading(family.metric, form), family_samples(family)
        for metric, samples in self._telemetry.target_samples():
            parts += heading(metric, form), *samples
        for histogram in histograms:
            parts += heading(histogram.metric, form), histogram_samples(histogram)
        if form is Format.OPENMETRICS:
            parts.append(b"# EOF\n")
        return b"".join(parts)
