"""What holds for the parts of every pack."""

from __future__ import annotations

from pgque_exporter import __version__
from tests.support.repository import ROOT, tracked_files


def test_a_pack_takes_its_version_from_the_project() -> None:
    parts = tracked_files("sql/observability/**/internal/*.sql", "sql/observability/*/*.sql")
    sources = [part for part in parts if part.name not in ("install.sql", "uninstall.sql")]
    assert len(sources) > 30
    assert [str(part.relative_to(ROOT)) for part in sources if __version__ in part.read_text("utf-8")] == []
