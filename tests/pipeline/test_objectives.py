"""Objectives of the user's own: from a file into the tables and the report, and what is wrong with one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgque_exporter.errors import UserError
from pgque_pipeline import cli
from pgque_pipeline.objectives import read
from pgque_pipeline.report.collect import collect
from pgque_pipeline.report.words import meaning
from pgque_pipeline.settings import OBJECTIVES, Ratio, Threshold
from tests.pipeline.history import history
from tests.pipeline.oracle import Objectives
from tests.pipeline.test_run import BEGIN, Runs, write
from tests.pipeline.truth import SETTINGS
from tests.support.repository import ROOT

ACKED, NACKED = "pgque.message.acked_total", "pgque.message.nacked_total"
OWN = f"""\
# What we promise the shop.
- name: prompt
  metric: pgque.consumer.lag_seconds
  most: 10.5
  target: 0.9
- {{name: short queue, metric: pgque_queue_depth, most: 50, target: 0.75}}
- name: at the first try
  good: {ACKED}
  bad: {NACKED}
  target: 0.95
- name: nobody waits in a snapshot
  metric: pgque.snapshot_age_seconds
  most: 0
  target: 0.5
"""
# As the oracle has them; of the last there are no data.
SAME: Objectives = {
    "prompt": (0.9, "pgque.consumer.lag_seconds", 10.5),
    "short queue": (0.75, "pgque.queue.depth", 50.0),
    "at the first try": (0.95, ACKED, NACKED),
}


def given(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "objectives.yaml"
    path.write_text(text, "utf-8")
    return path


def test_other_objectives_make_the_tables_anew(spark: SparkSession, tmp_path: Path) -> None:
    runs = Runs(spark, tmp_path)
    lines = history(51, BEGIN, 6)
    write(runs.input / "metrics.json", lines)
    runs.run()
    assert runs.differences(lines) == []
    own = replace(SETTINGS, objectives=read(given(tmp_path, OWN)))
    assert runs.run(settings=own).days > 0
    assert runs.differences(lines, SAME) == []
    assert {row["objective"] for row in runs.rows("slo")} == {*SAME}
    assert runs.run(settings=own).days == 0
    facts = collect(spark, runs.warehouse, days=28)
    assert facts is not None
    assert {one.name: (one.meaning, one.target) for one in facts.objectives} == {
        "prompt": ("pgque.consumer.lag_seconds of at most 10.5\u00a0s", 0.9),
        "short queue": ("pgque.queue.depth of at most 50", 0.75),
        "at the first try": (f"{ACKED} rather than {NACKED}", 0.95),
    }
    assert facts.unjudged == ["nobody waits in a snapshot"]


def test_the_example_in_the_documents_is_the_usual(tmp_path: Path) -> None:
    """And what is usual reads as it always has."""
    text = (ROOT / "docs" / "pipeline.md").read_text("utf-8")
    [example] = [part for part in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "target:" in part]
    assert read(given(tmp_path, example)) == OBJECTIVES
    assert [meaning(one) for one in OBJECTIVES] == [
        "no critical health check",
        "lag of at most a minute",
        "acknowledged rather than dead-lettered",
    ]


@pytest.mark.parametrize(
    ("metric", "most", "words"),
    [
        ("consumer.lag_seconds", 0, "0\u00a0s"),
        ("consumer.lag_seconds", 0.25, "0.25\u00a0s"),
        ("consumer.lag_seconds", 61.0, "61\u00a0s"),
        ("consumer.lag_seconds", 300.0, "5\u00a0min"),
        ("consumer.idle_seconds", 5400, "90\u00a0min"),
        ("consumer.idle_seconds", 172_800, "2\u00a0d"),
        ("queue.depth", 10_000, "10,000"),
    ],
)
def test_a_limit_is_told_as_it_is(metric: str, most: float, words: str) -> None:
    objective = Threshold("x", f"pgque.{metric}", most, 0.9)
    assert meaning(objective) == f"pgque.{metric} of at most {words}"


def test_a_limit_of_zero_and_a_metric_in_prometheus_words(tmp_path: Path) -> None:
    text = "[{name: none, metric: pgque_message_dead_lettered, most: 0, target: 0.5}]"
    assert read(given(tmp_path, text)) == (Threshold("none", "pgque.message.dead_lettered", 0, 0.5),)
    text = f"[{{name: r, good: {ACKED.replace('.', '_')}, bad: {NACKED}, target: 0.5}}]"
    assert read(given(tmp_path, text)) == (Ratio("r", ACKED, NACKED, 0.5),)


GAUGE = "- name: lag\n  metric: pgque.consumer.lag_seconds\n"
COUNTERS = f"- name: delivery\n  good: {ACKED}\n"
KINDS = "Write metric and most for a share of samples, or good and bad for a share of events"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "objectives must be a list"),
        ("lag: 60", 1, "objectives must be a list"),
        ("[]", 1, "objectives needs at least one entry"),
        ("- lag", 1, "objectives must hold `key: value` lines"),
        ("- name: [", 1, "not valid YAML"),
        ("- metric: pgque.queue.depth\n  most: 1\n  target: 0.9", 1, "name is missing"),
        ("- name: 5\n  target: 0.9", 1, "name must be text, in quotes"),
        ("- name: ' '\n  target: 0.9", 1, "name: ' ' is no name. Write 1 to 100 printable characters"),
        (f"{GAUGE}  most: 60\n", 1, "target is missing"),
        (
            f"{GAUGE}  most: 60\n  target: 99.9",
            4,
            "target: '99.9' is not between 0 and 1. Write 0.999 for 99.9 %",
        ),
        (f"{GAUGE}  most: 60\n  target: 1", 4, "target: '1' is not between 0 and 1"),
        (f"{GAUGE}  most: 60\n  target: 0", 4, "target: '0' is not between 0 and 1"),
        (f"{GAUGE}  most: 60\n  target: true", 4, "target: 'True' is not between 0 and 1"),
        (f"{GAUGE}  most: 60\n  target: .nan", 4, "target: 'nan' is not between 0 and 1"),
        (f"{GAUGE}  most: 60\n  target: '0.9'", 4, "target: '0.9' is not between 0 and 1"),
        (f"{GAUGE}  most: -1\n  target: 0.9", 3, "most: '-1' is not a number of 0 or more. No metric is"),
        (f"{GAUGE}  most: .inf\n  target: 0.9", 3, "most: 'inf' is not a number of 0 or more"),
        (f"{GAUGE}  most: 60s\n  target: 0.9", 3, "most: '60s' is not a number of 0 or more"),
        (f"{GAUGE}  target: 0.9", 1, f"most is missing. {KINDS}"),
        (f"{GAUGE}  moist: 60\n  target: 0.9", 3, "unknown key 'moist'. Did you mean most?"),
        (
            f"{GAUGE}  most: 60\n  window: 28d\n  target: 0.9",
            4,
            "unknown key 'window'. Known here: bad, good, metric, most, name, target",
        ),
        ("- name: lag\n  target: 0.9", 1, f"lag says nothing of what is measured. {KINDS}"),
        (f"{GAUGE}  most: 60\n  target: 0.9\n  bad: {NACKED}", 5, f"bad doesn't go with metric. {KINDS}"),
        (f"{COUNTERS}  target: 0.9", 1, f"bad is missing. {KINDS}"),
        (f"{COUNTERS}  bad: {ACKED}\n  target: 0.9", 3, "good and bad are the same. Name two counters"),
        (
            f"{COUNTERS}  bad: pgque.message.purged_total\n  target: 0.9",
            3,
            "good is counted by queue and consumer, bad by queue. Name two counters of the same thing",
        ),
        (
            "- name: lag\n  metric: pgque.consumer.lag_second\n  most: 60\n  target: 0.9",
            2,
            "metric: unknown metric 'pgque.consumer.lag_second'. Did you mean pgque.consumer.lag_seconds?",
        ),
        (
            "- name: x\n  metric: latency\n  most: 60\n  target: 0.9",
            2,
            "metric: unknown metric 'latency'. The README's tables list all metrics",
        ),
        (
            f"- name: x\n  metric: {ACKED}\n  most: 60\n  target: 0.9",
            2,
            f"metric: {ACKED} is a counter, not a gauge. "
            "Metric and most are for gauges, good and bad for counters",
        ),
        (
            f"{COUNTERS}  bad: pgque.message.dead_lettered\n  target: 0.9",
            3,
            "bad: pgque.message.dead_lettered is a gauge, not a counter. Metric and most are for gauges, "
            "good and bad for counters",
        ),
        (
            f"{GAUGE}  most: 60\n  target: 0.9\n{GAUGE}  most: 90\n  target: 0.9",
            5,
            "name: 'lag' stands here a second time. Give each objective a name of its own",
        ),
        (f"{GAUGE}  most: 60\n  most: 90\n  target: 0.9", 4, "'most' stands here a second time"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, line: int, told: str) -> None:
    path = given(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: {told}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't read the objectives: No such file or directory"):
        read(tmp_path / "objectives.yaml")


@pytest.mark.parametrize("command", ["run", "stream"])
def test_commands_refuse_before_they_begin(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = given(tmp_path, f"{GAUGE}  most: 60\n  target: 2")
    words = [command, "--input", str(path), "--warehouse", str(tmp_path / "new"), "--objectives", str(path)]
    assert cli.main(words) == 2
    assert f"{path}:4: target: '2' is not between 0 and 1" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
