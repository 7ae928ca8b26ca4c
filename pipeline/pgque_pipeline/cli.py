"""The command line of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from pgque_exporter.command_line import Program, run
from pgque_pipeline.causes import cause

PROGRAM = Program(
    name="pgque-pipeline",
    description="Metric history of queues, on Spark.",
    package="pgque_pipeline.commands",
    commands={
        "run": "read new input and bring the tables up to date",
        "stream": "keep the tables up to date while the input is written",
        "dead-letters": "look at the databases' dead letters and group them by fault",
        "publish": "write baselines, SLOs and forecasts into PostgreSQL",
        "catalogue": "copy the tables into an Iceberg catalogue",
        "prepare": "make all later commands start in half the time",
        "demo": "generate weeks of metrics, run the pipeline on them and show the report",
        "report": "write a page with what the tables tell",
        "tables": "list the tables, their columns and where they are",
    },
    unexpected=cause,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code, as `command_line.run` gives it."""
    return run(PROGRAM, argv)
