"""The archive: what is in its files, and what becomes of them when the disk or the service fails."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import MessageToDict, Parse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter.archive import Archive, Loss
from pgque_exporter.archive_files import ArchiveFiles
from pgque_exporter.config import ArchiveConfig
from pgque_exporter.errors import UserError
from pgque_exporter.otlp.encode import SnapshotEncoder
from pgque_exporter.otlp.json_lines import LineEncoder
from pgque_exporter.otlp.layout import MAX_POINTS
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Snapshot
from tests.exporter.harness import CATALOGUE, DEPTH, SENT, ToyPack, config, labels, running, snapshot, target
from tests.support.collector import Point, points
from tests.support.database import Database, wait_until
from tests.support.processes import Process

SIZES = CATALOGUE["pgque.batch.size"]
RESOURCE = {"service.name": "pgque-exporter"}


def requests(data: bytes) -> list[ExportMetricsServiceRequest]:
    return [Parse(line, ExportMetricsServiceRequest()) for line in data.splitlines()]


def read(folder: Path) -> list[Point]:
    """The points of all closed files, oldest first."""
    found: list[Point] = []
    for path in sorted(folder.glob("*.jsonl*")):
        if path.suffix != ".part":
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            assert data.endswith(b"\n")
            found += points(requests(data))
    return found


def names(folder: Path) -> list[str]:
    """The kinds of the files there, oldest first."""
    return [path.name.split(".", 2)[2] for path in sorted(folder.glob("metrics-*"))]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 10**15).map(float))


@st.composite
def shots(draw: st.DrawFn) -> list[Snapshot]:
    queues = draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    found = []
    for number in range(draw(st.integers(1, 4))):
        here = [queue for queue in queues if draw(st.booleans())]
        depths = Family.of(DEPTH, [(labels(queue=queue), draw(NUMBERS)) for queue in here])
        sent = Family.of(SENT, [(labels(queue=queue), abs(draw(NUMBERS))) for queue in here])
        sizes = HistogramFamily(
            SIZES,
            tuple(
                HistogramSeries(
                    labels(queue=queue, consumer="c"),
                    (0.5, 10.0),
                    tuple(draw(st.lists(st.integers(0, 9), min_size=3, max_size=3))),
                    draw(NUMBERS),
                )
                for queue in here
            ),
        )
        families = tuple(family for family in (depths, sent) if family.labels)
        whole = (sizes,) if sizes.series else ()
        origin = draw(st.sampled_from([None, "1/5", "2/5"]))
        found.append(Snapshot("shop", 1000.0 + number, 0, families, (), 0, {}, whole, origin))
    return found


def comparable(found: Sequence[Point], *, marks: bool) -> list[Any]:
    """Points as comparable values; the start of a mark is nobody's concern."""
    chosen = [point for point in found if bool(point.flags) == marks]
    return sorted(repr((p.name, p.attributes, p.time, None if marks else p)) for p in chosen)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(shots())
def test_lines_say_what_is_pushed(found: list[Snapshot]) -> None:
    lines, pushed = LineEncoder(RESOURCE, "shop"), SnapshotEncoder(RESOURCE, "shop")
    for shot in found:
        written, encoded = lines.encode(shot), pushed.encode(shot)
        mine = points(requests(written.data))
        theirs = points(
            ExportMetricsServiceRequest.FromString(batch.payload) for batch in (*encoded.data, *encoded.ended)
        )
        assert written.points == len(mine)
        for marks in (False, True):
            assert comparable(mine, marks=marks) == comparable(theirs, marks=marks)


def test_lines_are_spelled_as_the_specification_has_them() -> None:
    sizes = HistogramFamily(SIZES, (HistogramSeries(labels(queue="q"), (0.5,), (2**60, 1), 3.5),))
    sent = Family.of(SENT, [(labels(queue='"\n\u2028'), 12.0)])
    shot = Snapshot("shop", 1000.25, 0, (sent,), (), 0, {}, (sizes,))
    [line] = LineEncoder(RESOURCE, "shop").encode(shot).data.splitlines()
    [request] = requests(line)
    expected = MessageToDict(request, use_integers_for_enums=True)
    given = json.loads(line)

    def bare(value: Any) -> Any:
        """Without what is the default anyway, as numbers where protobuf's library has them so."""
        if isinstance(value, dict):
            return {key: bare(one) for key, one in value.items() if one not in ("", [], {})}
        return [bare(one) for one in value] if isinstance(value, list) else value

    assert bare(given) == bare(expected)
    assert b'"aggregationTemporality":2' in line
    assert b'"timeUnixNano":"1000250000000"' in line
    assert f'"bucketCounts":["{2**60}","1"]'.encode() in line


def test_lines_are_no_larger_than_requests() -> None:
    shot = snapshot(*range(2 * MAX_POINTS + 1))
    written = LineEncoder(RESOURCE, "shop").encode(shot)
    assert [len(points([one])) for one in requests(written.data)] == [MAX_POINTS, MAX_POINTS, 1]


# --- files ---------------------------------------------------------------------------------------


def files(folder: Path, **options: Any) -> ArchiveFiles:
    found = ArchiveFiles(ArchiveConfig(folder, **options))
    found.start()
    return found


def test_a_file_is_closed_when_it_is_large_enough(tmp_path: Path) -> None:
    mine = files(tmp_path, rotate_size=10)
    mine.append(b"one\n")
    due = mine.due_in()
    assert due is not None
    assert due > 0
    mine.append(b"two two\n")
    assert mine.due_in() == 0
    mine.rotate()
    assert mine.due_in() is None
    mine.append(b"three\n")
    assert names(tmp_path) == ["jsonl.gz", "jsonl.part"]
    mine.stop()
    assert names(tmp_path) == ["jsonl.gz", "jsonl"]
    first, second = sorted(tmp_path.glob("metrics-*"))
    assert gzip.decompress(first.read_bytes()) == b"one\ntwo two\n"
    assert second.read_bytes() == b"three\n"


def test_the_oldest_files_go_when_all_are_too_large(tmp_path: Path) -> None:
    mine = files(tmp_path, max_size=1000, compress=False)
    for number in range(10):
        mine.append(f"{number}{'x' * 298}\n".encode())
        mine.rotate()
    assert [path.read_bytes()[:1] for path in sorted(tmp_path.glob("metrics-*"))] == [b"7", b"8", b"9"]
    assert (mine.size, mine.deleted) == (900, 7)
    mine.stop()


def test_files_of_others_stay(tmp_path: Path) -> None:
    theirs = ["metrics-2026-01-01T00-00-00.000.jsonl", "metrics-old.jsonl.gz", "metrics-1.jsonl.part"]
    for name in theirs:
        (tmp_path / name).write_bytes(b"x" * 500)
    mine = files(tmp_path, max_size=400)
    mine.append(b"y" * 499 + b"\n")
    mine.rotate()
    mine.append(b"z" * 499 + b"\n")
    mine.stop()
    assert all((tmp_path / name).read_bytes() == b"x" * 500 for name in theirs)


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    mine = files(tmp_path)
    mine.append(b"one\ntwo\n")
    mine.stop()
    [path] = tmp_path.glob("metrics-*.jsonl")
    path.rename(path.with_name(path.name + ".part"))
    with path.with_name(path.name + ".part").open("ab") as file:
        file.write(b"x" * 3_000_000)
    (tmp_path / "metrics-20260101T000000.000001Z.jsonl.gz.tmp").write_bytes(b"half")
    (tmp_path / "metrics-20260101T000000.000002Z.jsonl.part").write_bytes(b"nothing whole")
    files(tmp_path).stop()
    assert names(tmp_path) == ["jsonl.gz"]
    [packed] = tmp_path.glob("metrics-*.gz")
    assert gzip.decompress(packed.read_bytes()) == b"one\ntwo\n"


def test_a_file_that_was_packed_already_is_not_there_twice(tmp_path: Path) -> None:
    mine = files(tmp_path)
    mine.append(b"one\n")
    [path] = tmp_path.glob("*.part")
    copy = path.read_bytes()
    mine.rotate()
    path.write_bytes(copy)  # as if it had died before the last step
    mine.stop()
    files(tmp_path).stop()
    assert names(tmp_path) == ["jsonl.gz"]


def test_a_folder_belongs_to_one_service(tmp_path: Path) -> None:
    mine = files(tmp_path / "new" / "folder")
    with pytest.raises(UserError, match="another service archives there"):
        files(tmp_path / "new" / "folder")
    mine.stop()
    files(tmp_path / "new" / "folder").stop()


def test_a_folder_that_can_not_be_had_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't archive there"):
        files(tmp_path / "file")


def test_a_file_that_can_not_be_closed_is_closed_with_the_next(tmp_path: Path) -> None:
    mine = files(tmp_path, compress=False)
    mine.append(b"one\n")
    [path] = tmp_path.glob("*.part")
    (tmp_path / path.stem / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        mine.rotate()
    (tmp_path / path.stem / "in the way").rmdir()
    (tmp_path / path.stem).rmdir()
    with path.open("ab") as file:
        file.write(b"torn")
    mine.append(b"two\n")
    mine.rotate()
    assert [path.read_bytes() for path in sorted(tmp_path.glob("metrics-*"))] == [b"one\n", b"two\n"]
    assert names(tmp_path) == ["jsonl"] * 2
    mine.stop()


class _Unsynced(ArchiveFiles):
    """Of a folder that for a while can't be flushed, as on a disk that fails."""

    faulty = False

    def _sync_folder(self) -> None:
        if self.faulty:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super()._sync_folder()


@pytest.mark.parametrize("compress", [False, True])
def test_a_folder_that_can_not_be_flushed_has_each_line_once(tmp_path: Path, compress: bool) -> None:
    mine = _Unsynced(ArchiveConfig(tmp_path, compress=compress))
    mine.start()
    mine.append(b"one\n")
    mine.faulty = True
    with pytest.raises(OSError, match="error"):
        mine.rotate()
    for _ in range(2):
        with pytest.raises(OSError, match="error"):
            mine.append(b"lost\n")
    assert [name.removesuffix(".gz") for name in names(tmp_path) if not name.endswith(".part")] == ["jsonl"]
    mine.faulty = False
    mine.append(b"two\n")
    mine.rotate()
    found = [path.read_bytes() for path in sorted(tmp_path.glob("metrics-*"))]
    assert [gzip.decompress(data) if compress else data for data in found] == [b"one\n", b"two\n"]
    mine.stop()


_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from pgque_exporter.archive_files import ArchiveFiles
from pgque_exporter.config import ArchiveConfig

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
files = ArchiveFiles(ArchiveConfig(Path(sys.argv[1]), compress=False))
files.start()
files.append(b"a" * 99 + b"\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (150, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        files.append(b"b" * 99 + b"\\n")
    except OSError:
        print("full")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
files.append(b"c" * 99 + b"\\n")
files.stop()
"""


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    """A limit on the file's size takes the place of the disk's: half a line fits, then no more."""
    command = [sys.executable, "-c", _FULL_DISK, str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.split() == ["full"] * 3
    [path] = tmp_path.glob("metrics-*")
    assert path.read_bytes() == b"a" * 99 + b"\n" + b"c" * 99 + b"\n"


# --- sink ----------------------------------------------------------------------------------------


def test_every_point_is_accounted_for_when_the_folder_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archive"

    async def run() -> Archive:
        archive = Archive(ArchiveConfig(folder, compress=False), RESOURCE)
        archive.files.start()
        task = asyncio.create_task(archive.run())

        async def settled() -> None:
            async with asyncio.timeout(60):
                while archive.queued:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)

        archive.put(snapshot(1, 2))
        await settled()
        archive.files.rotate()
        folder.rename(tmp_path / "away")
        folder.write_text("in the way")
        for number in range(3):
            archive.put(snapshot(number))
        await settled()
        archive.put(snapshot(3, 4, metric=SENT))
        await settled()
        folder.unlink()
        archive.put(snapshot(7))
        await settled()
        await archive.close(60)
        await task
        return archive

    archive = asyncio.run(run())
    assert archive.ledger.dropped == {Loss.WRITE_FAILED: 5}
    assert archive.ledger.polled == archive.ledger.written + 5
    assert [point.value for point in read(tmp_path / "away")] == [1, 2]
    # The second queue ended while nothing could be written: that is told as soon as something can.
    value, mark = read(folder)
    assert (value.value, dict(value.attributes)["queue"]) == (7, "q0")
    assert (mark.flags, dict(mark.attributes)["queue"], mark.name) == (1, "q1", "pgque.queue.depth")
    assert "can't write to" in caplog.text


def test_a_database_that_is_gone_is_forgotten_with_its_last_point(tmp_path: Path) -> None:
    async def run() -> Archive:
        archive = Archive(ArchiveConfig(tmp_path), RESOURCE)
        archive.files.start()
        task = asyncio.create_task(archive.run())
        for values in ((1, 2), (3,)):
            archive.put(snapshot(*values))
            if len(values) == 2:
                archive.forget("shop")
            async with asyncio.timeout(60):
                while archive.queued:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
        await archive.close(60)
        await task
        return archive

    assert asyncio.run(run()).ledger.written == 3, "of the second queue nothing was known any more"


def service_config(database: Database, folder: Path, port: str = "127.0.0.1:0") -> dict[str, Any]:
    return {
        "listen": port,
        "interval": "50ms",
        "targets": [{"name": "shop", "dsn": database.dsn()}],
        "archive": {"directory": str(folder)},
    }


@pytest.mark.servers("pg18")
def test_a_service_archives_what_it_polls(database: Database, toy: ToyPack, tmp_path: Path) -> None:
    toy.add("pgque.queue.depth", 5, queue="q")
    given = config(target(database.dsn(), interval=0.1), archive=ArchiveConfig(tmp_path, rotate_after=0.5))
    with running(given) as service:
        wait_until(lambda: len(list(tmp_path.glob("*.gz"))) >= 2, what="files that were closed")
        written = service.sample("pgque_exporter_archive_points_written_total")
        assert written is not None
        assert written > 0
        assert service.sample("pgque_exporter_archive_size_bytes") is not None
    assert names(tmp_path)[-1] in ("jsonl", "jsonl.gz"), "it was closed at the end"
    depths = [point for point in read(tmp_path) if point.name == "pgque.queue.depth"]
    assert {point.value for point in depths} == {5}
    assert len({point.time for point in depths}) == len(depths) >= written / 2


@pytest.mark.servers("pg18")
@pytest.mark.slow
def test_what_was_written_survives_a_kill(database: Database, toy: ToyPack, tmp_path: Path) -> None:
    toy.add("pgque.queue.depth", 5, queue="q")
    folder, file = tmp_path / "archive", tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(service_config(database, folder)))
    chance = random.Random(7)
    least = 0
    before: set[Path] = set()
    for _ in range(3):
        enough = chance.randint(1, 20_000)
        argv: list[str | Path] = [sys.executable, "-m", "pgque_exporter", "run", "--config", file]
        with Process(argv, log=tmp_path / "log") as process:

            def grown(enough: int = enough) -> Path | None:
                new = [path for path in folder.glob("*.part") if path not in before]
                return new[0] if new and new[0].stat().st_size >= enough else None

            path = process.wait_for(grown, "a new file that grows")
            assert path is not None
            before.add(path)
            least += path.read_bytes().count(b"\n")
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)
    mine = ArchiveFiles(ArchiveConfig(folder))
    mine.start()
    mine.stop()
    times = [point.time for point in read(folder) if point.name == "pgque.queue.depth"]
    assert len(set(times)) == len(times) >= least > 0
    assert os.listdir(folder).count(".lock") == 1


def test_a_disk_that_hangs_at_the_start_does_not_keep_the_service(tmp_path: Path) -> None:
    folder, file = tmp_path / "archive", tmp_path / "config.yaml"
    folder.mkdir()
    os.mkfifo(folder / ".lock")  # to open it waits for a reader who never comes
    targets = [{"name": "shop", "dsn": "host=127.0.0.1 port=1 dbname=shop"}]
    given = {"listen": "127.0.0.1:0", "targets": targets, "archive": {"directory": str(folder)}}
    file.write_text(yaml.safe_dump(given))
    argv: list[str | Path] = [sys.executable, "-m", "pgque_exporter", "run", "--config", file]
    with Process(argv, log=tmp_path / "log") as process:

        def listens() -> bool:
            status = Path(f"/proc/{process.pid}/status").read_text("ascii")
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            return bool(caught >> (signal.SIGTERM - 1) & 1)

        process.wait_for(listens, "a service that listens to signals")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
