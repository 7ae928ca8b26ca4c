"""The report in a browser: it fits narrow screens, in light and dark, and asks for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards.pictures.take_report import Shot, shoot
from pgque_pipeline.report.page import page
from tests.pipeline.report_facts import facts


@pytest.mark.parametrize("name", ["billing", "x" * 300, "<script src=//example.org/x.js></script>"])
def test_the_report_fits_every_screen(browser: None, name: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(page(facts(name, name)), "utf-8")
    shots = [
        Shot(tmp_path / f"{width}-{dark}.png", width, dark=dark)
        for width in (390, 1300)
        for dark in (False, True)
    ]
    seen = shoot(report, shots)
    assert [(one.width, one.messages) for one in seen] == [(shot.width, []) for shot in shots]
    light, dark = (shot.picture.read_bytes() for shot in shots[:2])
    assert light.startswith(b"\x89PNG")
    assert light != dark


def test_a_page_that_asks_for_something_is_told(browser: None, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    wide = '<div style="width: 2000px">wide</div><img src="http://127.0.0.1:9/x.png">'
    report.write_text(f"<!doctype html><body>{wide}", "utf-8")
    [seen] = shoot(report, [Shot(tmp_path / "page.png", 390)])
    assert seen.width > 390
    assert "asks for http://127.0.0.1:9/x.png" in seen.messages
