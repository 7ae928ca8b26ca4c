"""A run that is killed at any moment and repeated leaves the tables of an undisturbed one."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.history import history
from tests.pipeline.test_run import BEGIN, Runs, write
from tests.support.processes import wait_for
from tests.support.repository import ROOT

KILLS = int(os.environ.get("PGQUE_PIPELINE_KILLS", "3"))
SEED = int(os.environ.get("PGQUE_PIPELINE_SEED", "1"))
# Files that such a run makes before its last, as was counted: the span from which moments are drawn.
PATHS = 28
# Kills of one warehouse.
IN_A_ROW = 3
# Seconds without a new file after which a stream has nothing to do.
IDLE = 5


@pytest.mark.parametrize("seed", range(SEED, SEED + math.ceil(KILLS / IN_A_ROW)))
def test_a_killed_run_is_made_good_by_the_next(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(seed)
    runs = Runs(spark, tmp_path)
    lines: list[str] = []
    killed = 0
    for number in range(IN_A_ROW):
        lines += history(100 * seed + number, BEGIN, 5)
        write(runs.input / "all.json", lines)
        write(runs.input / "half.json", lines[::2])  # a batch of its own, of points that come twice
        killed += kill_after(spark, runs, chance.randint(1, PATHS))
    runs.run()
    assert runs.differences(lines) == []
    assert killed > 0, "every run had ended before its moment"


def kill_after(spark: SparkSession, runs: Runs, paths: int, command: str = "run") -> bool:
    """Kill a run, or a stream, once it has made so many paths; whether it was still at work.

    A stream doesn't end by itself, so it is killed too once it makes no more.
    """
    before = paths_below(runs.root)
    seen = {*before}
    changed = time.monotonic()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.java_parameters
    words = [command, str(java.port), str(java.auth_token), str(runs.input), str(runs.root)]
    with subprocess.Popen([sys.executable, "-m", "tests.pipeline.killed_run", *words], cwd=ROOT) as process:

        def due() -> bool:
            nonlocal changed
            if process.poll() is not None:
                return True
            new = paths_below(runs.root) - seen
            if new:
                changed = time.monotonic()
                seen.update(new)
            idle = command == "stream" and seen != before and time.monotonic() - changed >= IDLE
            return idle or len(seen - before) >= paths

        wait_for(due, "the moment to kill the run", timeout=300)
        process.send_signal(signal.SIGKILL)
        code = process.wait()
    call_back_here(spark)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def call_back_here(spark: SparkSession) -> None:
    """End what the other process left to Spark, and have Spark call this one again."""
    for query in spark.streams.active:
        query.stop()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    server = gateway.__dict__.get("_callback_server")
    if server is not None:
        there = gateway.java_gateway_server
        there.resetCallbackClient(there.getCallbackClient().getAddress(), server.port)


def paths_below(root: Path) -> set[str]:
    """Whatever is there while others make and delete it."""
    return {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}
