"""The structured events that the engine writes into the server's log, read back from the log itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pgque_exporter.demo.cluster import Cluster

_EVENT = re.compile(
    r" \[(?P<pid>\d+)\] LOG:  pgque\.(?P<component>\w+)\.(?P<level>\w+) (?P<message>.*)\n"
    r".* \[(?P=pid)\] DETAIL:  (?P<attrs>.*)\n"
)


@dataclass(frozen=True)
class LogEvent:
    component: str
    level: str
    message: str
    attrs: dict[str, Any]


class ServerLog:
    """What one server has written since `mark` was called last."""

    def __init__(self, cluster: Cluster) -> None:
        self._path = cluster.log_path
        self.mark()

    def mark(self) -> None:
        """Forget all that is there up to now."""
        self._offset = self._path.stat().st_size

    def text(self) -> str:
        with self._path.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode()

    def events(self) -> list[LogEvent]:
        return [
            LogEvent(found["component"], found["level"], found["message"], json.loads(found["attrs"]))
            for found in _EVENT.finditer(self.text())
        ]
