"""Two servers to try faults on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.stage import Stage, stage


@pytest.fixture(scope="package")
def victim() -> Iterator[Stage]:
    """The server that things happen to."""
    with stage() as staged:
        yield staged


@pytest.fixture(scope="package")
def bystander() -> Iterator[Stage]:
    """The server that nothing happens to."""
    with stage() as staged:
        yield staged
