"""The OpenTelemetry Collector itself, built here from pinned modules and run with the config we ship.

`python -m tests.support.otelcol` builds it ahead of time.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgque_exporter.demo.cluster import free_port
from tests.support.collector import Collector, in_front_of_a_sink
from tests.support.processes import Process
from tests.support.repository import ROOT
from tests.support.tools import Unavailable, locked, tools_folder

SOURCES = ROOT / "deploy" / "collector"
_BUILD_TIMEOUT = 1200  # seconds: on a new machine every module is fetched and compiled


def otelcol_program() -> Path:
    """The collector, built if need be; raises Unavailable."""
    parts = ("build.sh", "builder.yaml", "go.mod", "go.sum")
    version = hashlib.sha256(b"".join((SOURCES / part).read_bytes() for part in parts)).hexdigest()[:16]
    folder = tools_folder("otelcol")
    program = folder / version / "otelcol"
    with locked(folder):
        if not program.exists():
            _build(program.parent)
    return program


def _build(folder: Path) -> None:
    if shutil.which("go") is None:
        raise Unavailable("the OpenTelemetry Collector is built with Go, which isn't installed")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    result = subprocess.run(
        [SOURCES / "build.sh", partial],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_TIMEOUT,
        check=False,
    )
    if result.returncode != 0:
        raise Unavailable(f"the OpenTelemetry Collector could not be built: {result.stdout[-500:].strip()}")
    partial.rename(folder)


@contextmanager
def run_otelcol(folder: Path) -> Iterator[Collector]:
    """It, with the config we ship."""

    def make(grpc_address: str, http_address: str, backend: str) -> Process:
        return Process(
            [otelcol_program(), "--config", SOURCES / "config.yaml"],
            log=folder / "otelcol.log",
            env={"OTLP_GRPC": grpc_address, "OTLP_HTTP": http_address, "OTLP_BACKEND": backend},
            cwd=folder,
        )

    with in_front_of_a_sink(make) as collector:
        yield collector


@contextmanager
def run_archiving_otelcol(folder: Path, archive: Path, *, compression: str = "") -> Iterator[str]:
    """It, with the config that keeps metrics in a file; the address for OTLP over HTTP as a URL.

    The file is complete once this has ended.
    """
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    process = Process(
        [otelcol_program(), "--config", SOURCES / "config-archive.yaml"],
        log=folder / "otelcol.log",
        env={
            "OTLP_GRPC": addresses[0],
            "OTLP_HTTP": addresses[1],
            "ARCHIVE": str(archive),
            "ARCHIVE_COMPRESSION": compression,
        },
        cwd=folder,
    )
    with process:
        process.wait_for(lambda: "Everything is ready" in process.output(), "the collector is ready")
        yield f"http://{addresses[1]}"


def main() -> int:
    """Build it and say where it is, or why it can't be had."""
    try:
        print(f"OpenTelemetry Collector: {otelcol_program()}")
    except Unavailable as error:
        print(f"OpenTelemetry Collector: none ({error})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
