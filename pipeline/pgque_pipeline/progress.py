"""How far a run is, for the person who waits for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TextIO

_WIDTH = 24


@dataclass
class Progress:
    """One line that is written over on a terminal, a line for each step elsewhere; nothing if quiet."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: bool = False
    _shown: int = 0
    _said: str = ""

    def step(self, name: str, share: float, detail: str) -> None:
        """Say what begins now and which share of its kind is done."""
        if self.quiet:
            return
        text = f"{name} {detail}".strip()
        if not self.stream.isatty():
            if text != self._said:
                print(text, file=self.stream, flush=True)
            self._said = text
            return
        done = round(share * _WIDTH)
        line = f"[{'#' * done}{'.' * (_WIDTH - done)}] {text}"
        self.stream.write(f"\r{line.ljust(self._shown)}")
        self.stream.flush()
        self._shown = len(line)

    def note(self, text: str) -> None:
        """Say something that stays."""
        self.end()
        if not self.quiet:
            print(text, file=self.stream, flush=True)

    def warn(self, text: str) -> None:
        """Say what goes wrong: also to whoever wants to see no progress."""
        self.end()
        print(f"pgque-pipeline: warning: {text}", file=self.stream, flush=True)

    def end(self) -> None:
        """Leave the line, so that what follows stands on one of its own."""
        if self._shown:
            self.stream.write(f"\r{' ' * self._shown}\r")
            self._shown = 0
