"""Every direct dependency has a reason in the docs and an exact version with hashes."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.debian import EXTENSIONS, POSTGRES_VERSION, PROGRAMS
from tests.support.java import PACKAGE as JAVA_PACKAGE
from tests.support.repository import ROOT
from tests.support.wheels import WHEELS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SELF = PROJECT["project"]["name"]
PICTURES = ROOT / "dashboards" / "pictures"
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

each_lock = pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)


def requirements(*extras: str) -> list[Requirement]:
    """Direct dependencies of the service and of these extras."""
    project = PROJECT["project"]
    texts = [*project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    parsed = [Requirement(text) for text in texts]
    return [requirement for requirement in parsed if requirement.name != SELF]


def pins(lock: str) -> dict[str, str]:
    """Version by name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_every_dependency_has_its_reason_and_no_other_has() -> None:
    document = (ROOT / "docs/dependencies.md").read_text("utf-8")
    named = re.findall(r"^\| (`[^|]+`) \| \S", document, re.MULTILINE)
    described = [name for names in named for name in re.findall(r"`([^`]+)`", names)]
    build = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    extras = PROJECT["project"]["optional-dependencies"]
    used = {requirement.name for requirement in [*requirements(*extras), *build]}
    used |= {*PROGRAMS.values(), f"postgresql-{POSTGRES_VERSION}", *EXTENSIONS}
    used |= {wheel.package for wheel in WHEELS.values()} | {JAVA_PACKAGE}
    used |= set(json.loads((PICTURES / "package.json").read_text("utf-8"))["dependencies"])
    assert sorted(described) == sorted(used)


@each_lock
def test_lock_files_pin_every_package_by_hash(lock: Path) -> None:
    text = lock.read_text("utf-8")
    packages = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    unpinned = [
        package.split()[0]
        for package in packages
        if package.strip() and not package.startswith("#") and "--hash=sha256:" not in package
    ]
    assert unpinned == []


@each_lock
def test_lock_files_leave_the_choice_of_an_index_to_the_reader(lock: Path) -> None:
    places = r"--(?:extra-)?index-url|--find-links|--trusted-host|https?://"
    assert re.findall(places, lock.read_text("utf-8")) == []


def test_the_packages_of_npm_are_locked_with_their_hashes_and_from_any_registry() -> None:
    wanted = json.loads((PICTURES / "package.json").read_text("utf-8"))["dependencies"]
    packages = json.loads((PICTURES / "package-lock.json").read_text("utf-8"))["packages"]
    del packages[""]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if "integrity" not in package] == []


@pytest.mark.parametrize("extra", [lock.stem for lock in LOCKS])
def test_lock_files_are_as_new_as_the_project_asks(extra: str) -> None:
    locked = pins((ROOT / "requirements" / f"{extra}.txt").read_text("utf-8"))
    extras = ("demo", "dev") if extra == "dev" else (extra,)
    wrong = {}
    for requirement in requirements(*extras):
        version = locked.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wrong[requirement.name] = version
    assert wrong == {}, "run `make lock`"
