"""The service knows no queue engine: what it calls is found in the database."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pgque_exporter.catalogue import load
from tests.support.repository import ROOT

PACKAGE = ROOT / "exporter/pgque_exporter"
# By design, the demo runs one engine and the ticker drives one.
OF_ONE_ENGINE = ("demo/", "commands/demo.py", "commands/ticker.py")
ENGINES = """
    pgque pgq pgmq pgqrs postgremq dataddo pgqueuer procrastinate pgboss graphile_worker oban absurd river
    delayed_jobs que good_job
""".split()  # noqa: SIM905 (a list of words is better read so)
# pgque-exporter is our own name; metric names are the catalogue's.
ENGINE_NAME = re.compile(rf"\b({'|'.join(ENGINES)})\b(?!-exporter)")
METRICS = {metric.name for metric in load()}


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string that isn't a docstring."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def engine_names(path: Path) -> list[str]:
    return [
        f"{path.relative_to(PACKAGE)}:{line}: {match.group()}"
        for line, text in literals(path.read_text("utf-8"))
        if text not in METRICS
        for match in ENGINE_NAME.finditer(text)
    ]


def test_no_text_in_the_service_names_an_engine() -> None:
    sources = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.relative_to(PACKAGE).as_posix().startswith(OF_ONE_ENGINE)
    ]
    assert len(sources) > 10
    assert [name for path in sources for name in engine_names(path)] == []


def test_the_rule_sees_what_it_should() -> None:
    source = '"""On pgque."""\nA = "select pgque.queue_stats()"\nB = "pgque.queue.depth"\nC = f"{A} pgmq.q"\n'
    texts = [text for _, text in literals(source)]
    assert texts == ["select pgque.queue_stats()", "pgque.queue.depth", " pgmq.q"]
    assert ENGINE_NAME.search(texts[0])
    assert texts[1] in METRICS
    assert ENGINE_NAME.search(texts[2])
    assert not ENGINE_NAME.search("pgque-exporter pgque_exporter pgque_monitor PGQUE_DSN PgQue")
