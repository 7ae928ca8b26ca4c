"""The Java that Spark runs on: the system's, else Debian's.

`python -m tests.support.java` fetches it ahead of time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pgque_pipeline.java import JAVA_NEEDED, find_java
from tests.support.debian import fetch
from tests.support.tools import Unavailable

# What a Java process takes from its environment to need little of this machine.
SMALL = {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}

PACKAGE = f"openjdk-{JAVA_NEEDED}-jre-headless"


def java_home() -> Path | None:
    """What JAVA_HOME has to be; None where the one that is found anyway will do. Raises Unavailable."""
    java = find_java()
    if java is not None and (java.version or 0) >= JAVA_NEEDED:
        return None
    tree = fetch(PACKAGE)
    home = next((path.parents[1] for path in tree.glob("usr/lib/jvm/*/bin/java")), None)
    if home is None:
        raise Unavailable(f"Debian's package {PACKAGE} has no program java")
    return home


def main() -> int:
    """Say where it is, or why it can't be had."""
    try:
        print(f"Java: {java_home() or find_java()}")
    except Unavailable as error:
        print(f"Java: none ({error})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
