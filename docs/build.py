"""Write the parts of the documentation that are made from the metric catalogue.

python docs/build.py            write them
python docs/build.py --check    write nothing; exit 1 when a committed file differs
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pgque_exporter.catalogue import Metric, Source, load

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def table(metrics: list[Metric]) -> str:
    """A Markdown table of metrics, as they stand on a Prometheus page."""
    lines = ["| Prometheus | type | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        lines.append(f"| `{metric.prometheus_name}` | {metric.type} | {labels} | {metric.help} |")
    return "\n".join(lines)


def fill(text: str, marker: str, content: str) -> str:
    """`text` with all between the two comments of this marker replaced."""
    pattern = re.compile(rf"(<!-- {marker}: generated -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{README.name} has no place marked {marker}")
    return pattern.sub(lambda match: match[1] + content + "\n" + match[2], text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write what the documentation takes from the catalogue.")
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 on a difference")
    check = parser.parse_args().check

    metrics = list(load())
    old = README.read_text("utf-8")
    new = old
    for source in Source:
        new = fill(new, f"metrics-{source}", table([m for m in metrics if m.source is source]))
    if new == old:
        return 0
    if check:
        print(f"{README.name} is out of date: run make generate", file=sys.stderr)
        return 1
    README.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
