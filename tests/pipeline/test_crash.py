"""A run that is killed at any moment and repeated leaves the tables of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.pipeline.history import history
from tests.pipeline.test_run import BEGIN, Runs, write
from tests.support.processes import wait_for
from tests.support.repository import ROOT

KILLS = int(os.environ.get("PGQUE_PIPELINE_KILLS", "3"))
SEED = int(os.environ.get("PGQUE_PIPELINE_SEED", "1"))
# Files that such a run makes, as was counted: the span from which moments are drawn.
PATHS = 170


def test_a_killed_run_is_made_good_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    runs = Runs(spark, tmp_path)
    lines: list[str] = []
    killed = 0
    for number in range(KILLS):
        lines += history(100 + number, BEGIN, 5)
        write(runs.input / "all.json", lines)
        write(runs.input / "half.json", lines[::2])  # a batch of its own, of points that come twice
        killed += kill_after(spark, runs, chance.randint(1, PATHS))
    runs.run()
    assert runs.differences(lines) == []
    assert killed > 0, "every run had ended before its moment"


def kill_after(spark: SparkSession, runs: Runs, paths: int) -> bool:
    """Kill a run once it has made so many paths; whether it was still at work."""
    before = paths_below(runs.root)
    seen = {*before}
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.java_parameters
    command = [sys.executable, "-m", "tests.pipeline.killed_run", str(java.port), str(java.auth_token)]
    with subprocess.Popen([*command, str(runs.input), str(runs.root)], cwd=ROOT) as process:

        def due() -> bool:
            if process.poll() is not None:
                return True
            seen.update(paths_below(runs.root))
            return len(seen - before) >= paths

        wait_for(due, "the moment to kill the run", timeout=300)
        process.send_signal(signal.SIGKILL)
        code = process.wait()
    assert code in (0, -signal.SIGKILL)
    return code != 0


def paths_below(root: Path) -> set[str]:
    """Whatever is there while others make and delete it."""
    return {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}
