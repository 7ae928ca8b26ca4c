"""A YAML document together with the line on which each of its keys and values stands."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from pgque_exporter.errors import UserError

Path = Sequence[str | int]


@dataclass(frozen=True)
class Document:
    """Plain data of a YAML file, and where it came from."""

    name: str
    data: object
    _root: yaml.Node | None

    def where(self, path: Path, *, key: bool = False) -> str:
        """`file:line` of the value at `path`, or with `key` of the key that holds it.

        A path that leads out of the document gives the last place that exists.
        """
        node = self._root
        line = node.start_mark.line if node is not None else 0
        for step in path:
            if isinstance(node, yaml.MappingNode):
                pair = next((pair for pair in node.value if pair[0].value == str(step)), None)
                if pair is None:
                    break
                node = pair[1]
                line = pair[0].start_mark.line
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.start_mark.line
            else:
                break
        if not key and isinstance(node, yaml.ScalarNode):
            line = node.start_mark.line
        return f"{self.name}:{line + 1}"


def read(path: pathlib.Path, what: str) -> Document:
    """Parse a file; `what` it holds stands in the UserError if it can't be read."""
    name = str(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(
            f"can't read {what}: {reason}", where=name, hint="check the path and its permissions"
        ) from None
    return parse(text, name)


def parse(text: str, name: str) -> Document:
    """Parse one YAML document; a syntax error or a key that stands twice is a UserError."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = str(error.problem or error.context)
        if "tag" in problem or "alias" in problem:
            # It quotes the value, which may be a secret that begins with one of YAML's own signs.
            raise UserError(
                "not valid YAML: a value begins with ! or *", where=where, hint="put the value in quotes"
            ) from None
        raise UserError(f"not valid YAML: {problem}", where=where) from None
    except (yaml.YAMLError, ValueError) as error:
        # Characters that YAML forbids, or an impossible date.
        raise UserError(f"not valid YAML: {str(error).splitlines()[0]}", where=name) from None
    if root is not None:
        _refuse_repeated_keys(root, name, set())
    return Document(name, data, root)


def _refuse_repeated_keys(node: yaml.Node, name: str, visited: set[int]) -> None:
    # YAML itself keeps the last one silently: half of the author's intention would be lost.
    if id(node) in visited:  # an anchor may lead back to itself
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    where = f"{name}:{key.start_mark.line + 1}"
                    what = f"{key.value!r} stands here a second time"
                    raise UserError(what, where=where, hint="keep one of the two")
                seen.add(key.value)
            _refuse_repeated_keys(value, name, visited)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, name, visited)
