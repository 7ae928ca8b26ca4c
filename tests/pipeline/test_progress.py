"""Progress: a line that is written over on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

from pgque_pipeline.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_is_written_over() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.step("reading", 0.5, "1,000 points")
    progress.step("making days", 0, "")
    progress.end()
    first, second, last = terminal.getvalue().split("\r")[1:4]
    assert first == "[############............] reading 1,000 points"
    assert second == "[........................] making days".ljust(len(first))
    assert last.strip() == ""
    assert "\n" not in terminal.getvalue()


def test_what_is_noted_stays() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.step("reading", 0.5, "1,000 points")
    progress.note("2,000 points")
    assert terminal.getvalue().endswith("\r2,000 points\n")
    quiet = io.StringIO()
    Progress(quiet, quiet=True).note("2,000 points")
    assert quiet.getvalue() == ""


def test_a_warning_is_told_to_the_quiet_as_well() -> None:
    quiet = io.StringIO()
    Progress(quiet, quiet=True).warn("the disk is full")
    assert quiet.getvalue() == "pgque-pipeline: warning: the disk is full\n"


def test_elsewhere_each_step_is_a_line() -> None:
    stream = io.StringIO()
    Progress(stream).step("reading", 0.5, "1,000 points")
    Progress(stream, quiet=True).step("reading", 1, "2,000 points")
    assert stream.getvalue() == "reading 1,000 points\n"


def test_elsewhere_a_step_that_goes_on_is_said_once() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for share in (0.1, 0.2, 0.3):
        progress.step("generating", share, "28 days")
    progress.step("reading", 0, "")
    assert stream.getvalue() == "generating 28 days\nreading\n"
