"""What `pgque-pipeline prepare` has Java learn from: all that a run needs, on a day of generated input.

    python -m pgque_pipeline.training ARCHIVE
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pgque_pipeline import class_archive
from pgque_pipeline.demo.history import round_down, write_history
from pgque_pipeline.progress import Progress
from pgque_pipeline.report.write import write_report
from pgque_pipeline.run import Request, run
from pgque_pipeline.session import close_session, open_session
from pgque_pipeline.settings import Settings
from pgque_pipeline.warehouse.store import open_warehouse


def main(archive: Path) -> None:
    """Run the pipeline; Java's process ends with the archive written."""
    spark = open_session(java_options=class_archive.training(archive))
    gateway = spark.sparkContext._gateway
    now = datetime.now(UTC)
    with TemporaryDirectory() as folder:
        write_history(Path(folder) / "input", end=round_down(now), days=1)
        warehouse = open_warehouse(Path(folder) / "warehouse", create=True)
        request = Request(inputs=[Path(folder) / "input"], settings=Settings(), now=now)
        run(spark, warehouse, request, Progress(quiet=True))
        page = Path(folder) / "report.html"
        write_report(spark, open_warehouse(warehouse.root, create=False), page, days=1)
    close_session(spark)
    if gateway is not None:  # as it is only for a cluster's driver
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
