"""The targets that are polled right now, from the configuration and from discoveries, and their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pgque_exporter.config import TargetConfig
from pgque_exporter.state import TargetState
from pgque_exporter.target import Target

# Between the first polls of targets that begin together: hundreds of connections at one moment would
# have the first polls fail that are the most wanted. Later ones are spread over the interval.
_BETWEEN_FIRST_POLLS = 0.01  # seconds


@dataclass(slots=True)
class _Member:
    target: Target
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Fleet:
    """Keeps exactly the wanted targets running.

    One whose settings stay as they are keeps its connection, its data and its counters, whatever
    happens to the others.

    `make` makes a target, `left` is told the name of each that is no longer polled.
    """

    def __init__(self, make: Callable[[TargetConfig], Target], left: Callable[[str], None]) -> None:
        self._make = make
        self._left = left
        self._sources: dict[str, Sequence[TargetConfig]] = {}
        self._members: dict[str, _Member] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._started = False

    def states(self) -> list[TargetState]:
        """The latest state of every target: by source, and within one in its order."""
        return [member.target.state for member in self._members.values()]

    def state(self, name: str) -> TargetState | None:
        """The latest state of the target of this name."""
        member = self._members.get(name)
        return member.target.state if member is not None else None

    def alive(self) -> bool:
        """Whether every target has a task that works."""
        return not any(member.task.done() for member in self._members.values() if member.task is not None)

    def start(self) -> None:
        """Begin to poll."""
        self._started = True
        self._begin(self._members.values())

    def put(self, source: str, targets: Sequence[TargetConfig]) -> None:
        """Poll these targets, and none of those that the same source wanted before.

        Of two sources that want the same name, the one that came first gets it.
        """
        self._sources[source] = targets
        self._apply()

    def remove(self, source: str) -> None:
        """Forget a source and its targets."""
        if self._sources.pop(source, None) is not None:
            self._apply()

    async def close(self, seconds: float) -> None:
        """End all polls, for at most `seconds` politely."""
        for member in self._members.values():
            member.stop.set()
        tasks = {member.task for member in self._members.values() if member.task is not None} | self._leaving
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _apply(self) -> None:
        wanted: dict[str, TargetConfig] = {}
        for targets in self._sources.values():
            for config in targets:
                wanted.setdefault(config.name, config)
        before, self._members = self._members, {}
        joined: list[_Member] = []
        for name, config in wanted.items():
            member = before.get(name)
            if member is None or member.target.config != config:
                member = _Member(self._make(config))
                joined.append(member)
            self._members[name] = member
        for name, member in before.items():
            if self._members.get(name) is not member:
                self._retire(member)
            if name not in self._members:
                self._left(name)
        if self._started:
            self._begin(joined)

    def _retire(self, member: _Member) -> None:
        member.stop.set()
        if member.task is not None:
            self._leaving.add(member.task)
            member.task.add_done_callback(self._leaving.discard)

    def _begin(self, members: Iterable[_Member]) -> None:
        for number, member in enumerate(members):
            delay = min(number * _BETWEEN_FIRST_POLLS, member.target.config.interval)
            name = member.target.config.name
            before = [task for task in self._leaving if task.get_name() == name]
            member.task = asyncio.create_task(_run(member, delay, before), name=name)


async def _run(member: _Member, delay: float, before: Sequence[asyncio.Task[None]]) -> None:
    if before:
        # The target that this one replaces still holds its connection: a database never has two of ours.
        await asyncio.wait(before)
    await member.target.run(member.stop, delay)
