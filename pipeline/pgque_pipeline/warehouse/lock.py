"""One run at a time: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pgque_exporter.errors import UserError

NAME = "run.lock"


@contextmanager
def only_run(root: Path) -> Iterator[None]:
    """Hold the warehouse for this process. Raises UserError while another holds it."""
    with (root / NAME).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(
                f"another run is writing here ({holder})", where=str(root), hint="wait until it has ended"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n")
        file.flush()
        yield
