"""Write the parts of the documentation that are made from the metric catalogue and the pipeline's schemas.

python docs/build.py            write them
python docs/build.py --check    write nothing; exit 1 when a committed file differs
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pgque_exporter.catalogue import Metric, Source, load
from pgque_pipeline.schemas import TABLES, Table

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PIPELINE = ROOT / "docs/pipeline.md"


def table(metrics: list[Metric]) -> str:
    """A Markdown table of metrics, as they stand on a Prometheus page."""
    lines = ["| Prometheus | type | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        lines.append(f"| `{metric.prometheus_name}` | {metric.type} | {labels} | {metric.help} |")
    return "\n".join(lines)


def columns(table: Table) -> str:
    """A table of the pipeline: what it holds, and its columns."""
    by = {"day": "by day", "file": "by file", "whole": "as a whole"}[table.extent]
    lines = [f"### {table.name}", "", f"{table.doc} Replaced {by}.", ""]
    lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.type} | {one.unit} | {one.doc} |" for one in table.fields]
    return "\n".join(lines)


def fill(document: Path, text: str, marker: str, content: str) -> str:
    """`text` with all between the two comments of this marker replaced."""
    pattern = re.compile(rf"(<!-- {marker}: generated -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{document.name} has no place marked {marker}")
    return pattern.sub(lambda match: match[1] + content + "\n" + match[2], text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write what the documentation takes from the catalogue.")
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 on a difference")
    check = parser.parse_args().check

    metrics = list(load())
    of_metrics = {
        f"metrics-{source}": table([metric for metric in metrics if metric.source is source])
        for source in Source
    }
    of_tables = {"tables": "\n\n".join(columns(one) for one in TABLES.values())}
    results = [up_to_date(README, of_metrics, check=check), up_to_date(PIPELINE, of_tables, check=check)]
    return 0 if all(results) else 1


def up_to_date(document: Path, contents: Mapping[str, str], *, check: bool) -> bool:
    """Whether the document holds these contents, which it does at the end unless it is only compared."""
    old = new = document.read_text("utf-8")
    for marker, content in contents.items():
        new = fill(document, new, marker, content)
    if new != old and check:
        print(f"{document.name} is out of date: run make generate", file=sys.stderr)
        return False
    if new != old:
        document.write_text(new, "utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
