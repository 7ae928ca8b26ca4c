"""Java's classes of Spark, made ready once: with them each start takes half the time.

The archive is Java's own (application class data sharing, JEP 350). Java leaves it alone where it doesn't fit
any more, so a wrong one costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark

from pgque_pipeline.java import Java

# What Java would say on the terminal of classes that it can't take.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def place(java: Java) -> Path:
    """Where the archive for this Java and this Spark is, or would be. Raises RuntimeError without a home."""
    jars = Path(pyspark.__file__).parent / "jars"
    kind = hashlib.sha256("\0".join((java.said, pyspark.__version__, str(jars))).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pgque-exporter" / f"spark-classes-{kind}.jsa"


def options(java: Java) -> tuple[str, ...]:
    """What Java is to be told to use the archive; nothing where there is none."""
    try:
        archive = place(java)
    except RuntimeError:
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_QUIET) if archive.is_file() else ()


def training(archive: Path) -> tuple[str, ...]:
    """What Java is to be told to write, at its end, an archive of what it has used."""
    return (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable")
