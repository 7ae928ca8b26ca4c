"""Each place that words an error about a configuration is reached by a file with that mistake."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pgque_exporter import config
from pgque_exporter.errors import UserError
from tests.exporter import test_config, test_web_config
from tests.support.certificates import Authority

PACKAGE = Path(config.__file__).parent
MODULES = sorted([*PACKAGE.glob("config*.py"), PACKAGE / "web_config.py"])
ERRORS = ("UserError", "PydanticCustomError")
# Of the environment and of a change while the service runs; tested where those are.
NOT_OF_A_FILE = ("load_environment", "_from_text", "_refuse_weaker")

Line = tuple[str, int]


def places() -> dict[Line, str]:
    """The statements that word an error, by module and line."""
    found: dict[Line, str] = {}
    for module in MODULES:
        for function in ast.walk(ast.parse(module.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef) or function.name in NOT_OF_A_FILE:
                continue
            for statement in ast.walk(function):
                if isinstance(statement, ast.Raise | ast.Return) and words_an_error(statement):
                    found[module.name, statement.lineno] = ast.unparse(statement)
    return found


def words_an_error(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS
        for node in ast.walk(statement)
    )


@contextmanager
def lines_run() -> Iterator[set[Line]]:
    """The lines of the modules that run meanwhile."""
    seen: set[Line] = set()
    watched = {str(module): module.name for module in MODULES}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = watched.get(frame.f_code.co_filename)
        if name is None:
            return None
        if event == "line":
            seen.add((name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


def test_each_place_that_words_an_error_is_reached(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    test_web_config.fill(tmp_path, authority)
    with lines_run() as seen:
        for text, _, _ in test_config.MISTAKES.values():
            with pytest.raises(UserError):
                config.load_file(test_config.write(tmp_path, text))
        for text, _, _ in test_web_config.MISTAKES.values():
            with pytest.raises(UserError):
                test_web_config.read(tmp_path, text)
        test_config.test_an_unreadable_file_is_named(tmp_path)
        test_web_config.test_an_unreadable_file_is_named(tmp_path)
    wording = places()
    assert len(wording) > 20
    missed = {place: text for place, text in wording.items() if place not in seen}
    assert missed == {}
