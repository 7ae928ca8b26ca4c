"""Writes the generated weeks as the service's archive would have written them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from pgque_exporter.otlp.json_lines import LineEncoder
from pgque_exporter.otlp.own import service_resource
from pgque_exporter.snapshot import Snapshot
from pgque_pipeline.demo.plan import DAY, Plan, plan
from pgque_pipeline.demo.queues import Queue
from pgque_pipeline.demo.snapshots import DATABASE, Observer
from pgque_pipeline.schemas import GENERATED

STEP = 300  # seconds from poll to poll: as far apart as samples may be without a gap, unless a run is told
SEED = 2718
_RESOURCE = {**service_resource("demo:9718"), GENERATED: "true"}


def round_down(moment: datetime, step: int = STEP) -> int:
    """The last time of a poll at or before `moment`, in Unix seconds."""
    return int(moment.timestamp()) // step * step


def write_history(
    folder: Path,
    *,
    end: int,
    days: int,
    seed: int = SEED,
    step: int = STEP,
    progress: Callable[[float], object] = lambda _: None,
) -> int:
    """Write the `days` up to `end` (Unix seconds) into `folder`, a file a day, a poll every `step` seconds.

    The same arguments give the same files, byte for byte. `progress` is told the share that is done.
    Returns the number of points.
    """
    folder.mkdir(parents=True, exist_ok=True)
    points = 0
    begin = end - days * DAY
    with ExitStack() as files:
        file: BinaryIO | None = None
        day = ""
        for encoder, snapshot in _polls(plan(end, days), range(begin + step, end + 1, step), seed):
            moment = datetime.fromtimestamp(snapshot.taken_at, UTC)
            if file is None or f"{moment:%Y%m%d}" != day:
                day = f"{moment:%Y%m%d}"
                progress((snapshot.taken_at - begin) / (end - begin))
                files.close()
                file = files.enter_context(_packed(folder / f"metrics-{moment:%Y%m%dT%H%M%S.%f}Z.jsonl.gz"))
            lines = encoder.encode(snapshot)
            file.write(lines.data)
            points += lines.points
    return points


def _packed(path: Path) -> BinaryIO:
    # Without the time of writing, so that the same history is the same file.
    return gzip.GzipFile(path, "wb", compresslevel=1, mtime=0)  # type: ignore[return-value]


def _polls(world: Plan, moments: range, seed: int) -> Iterator[tuple[LineEncoder, Snapshot]]:
    """Every poll that was made, with the encoder of the exporter that made it."""
    step = moments.step
    queues = [Queue(world, queue, seed, moments.start - step) for queue in world.queues]
    observer = Observer(queues)
    encoder = LineEncoder(_RESOURCE, DATABASE)
    for moment in moments:
        if any(moment - step < at <= moment for at in world.restarts):
            encoder = LineEncoder(_RESOURCE, DATABASE)
        recounted = any(moment - step < at <= moment for at in world.recounted)
        for queue in queues:
            queue.step(moment, step)
            if recounted:
                queue.recount()
        if not any(moment in span for span in world.unwatched):
            yield encoder, observer.snapshot(moment)
