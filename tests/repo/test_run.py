"""The test run's own verdict."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

import pytest

from tests import run

# Results of tests in a JUnit report, by name of the test.
PASSED = {"passed": ""}
FAILED = {"failed": '<failure message="x"/>'}
SKIPPED = {"skipped": '<skipped type="pytest.skip" message="no promtool"/>'}
XFAILED = {"expected": '<skipped type="pytest.xfail" message="known"/>'}


def judge(*cases: Mapping[str, str], code: int = 0) -> run.Outcome:
    results = {name: result for case in cases for name, result in case.items()}
    texts = (f'<testcase classname="t" name="{name}">{result}</testcase>' for name, result in results.items())
    report = f"<testsuites><testsuite>{''.join(texts)}</testsuite></testsuites>"
    return run.judge(code, ElementTree.fromstring(report))  # noqa: S314 (our own text)


@pytest.fixture(autouse=True)
def _at_a_keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PGQUE_ALLOW_SKIPS", raising=False)


def test_all_is_well() -> None:
    assert judge(PASSED, XFAILED) == run.Outcome(True, "2 passed, 0 failed, 0 skipped")


def test_a_failure_fails_the_run_and_is_named() -> None:
    outcome = judge(PASSED, FAILED, code=1)
    assert (outcome.ok, outcome.notes) == (False, ["failed: t.failed"])


def test_an_exit_code_alone_fails_the_run() -> None:
    assert not judge(PASSED, code=3).ok


def test_nothing_run_is_a_failure() -> None:
    assert not judge().ok
    assert not judge(SKIPPED).ok


def test_skips_are_told_with_their_reason() -> None:
    outcome = judge(PASSED, SKIPPED)
    assert (outcome.ok, outcome.notes) == (True, ["skipped: t.skipped: no promtool"])


def test_ci_takes_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert not judge(PASSED, SKIPPED).ok
    assert judge(PASSED, XFAILED).ok


def test_ci_takes_a_skip_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(run, "ALLOWED_SKIPS", {"t.skip": "for a reason"})
    assert judge(PASSED, SKIPPED).ok


def test_ci_takes_every_skip_when_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PGQUE_ALLOW_SKIPS", "1")
    assert judge(PASSED, SKIPPED).ok
