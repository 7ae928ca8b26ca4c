"""Write the Grafana dashboards in dashboards/grafana/ from their descriptions in dashboards/generator/.

python dashboards/build.py            write them
python dashboards/build.py --check    write nothing; exit 1 when a committed file differs
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.generator import (
    consumer,
    dead_letters_retries,
    exporter_delivery,
    history,
    overview,
    queue,
    slo,
    ticker_rotation,
)

FOLDER = Path(__file__).resolve().parent / "grafana"
PAGES = (overview, queue, consumer, ticker_rotation, dead_letters_retries, exporter_delivery, slo, history)


def build() -> dict[str, str]:
    """The text of each file, by its name."""
    texts = {}
    for page in PAGES:
        dashboard = json.loads(json.dumps(page.build().build(), cls=JSONEncoder))
        for part in (*dashboard["links"], *dashboard["annotations"]["list"]):
            del part["placement"]  # the SDK's default hides it in a menu
        texts[f"{dashboard['uid']}.json"] = json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the Grafana dashboards.")
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 on a difference")
    check = parser.parse_args().check

    wanted = build()
    there = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    if wanted == there:
        return 0
    if check:
        wrong = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
        print(f"dashboards/grafana is out of date ({', '.join(wrong)}): run make generate", file=sys.stderr)
        return 1
    for name in there.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
