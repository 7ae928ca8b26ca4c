"""What documents and programs name is there, and no file tells of the machine that it was written on."""

from __future__ import annotations

import re
from pathlib import Path

from pgque_exporter import config, config_archive, config_leader, config_limits, config_targets
from tests.support.repository import ROOT, tracked_files

# Put together here, so that this file doesn't hold them either.
FORBIDDEN = [
    *(f"/{folder}/" for folder in ("root", "work")),
    *(
        ".".join(words)
        for words in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("deb", "debian", "org"),
            ("registry", "npmjs", "org"),
            ("proxy", "golang", "org"),
            ("crates", "io"),
            ("repo1", "maven", "org"),
        )
    ),
]


def without_code(text: str) -> str:
    """The text without code, in which brackets are no links and hashes no headings."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """Names by which the document's headings can be linked to."""
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.*?)\s*$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    broken = []
    text = without_code(document.read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{document.relative_to(ROOT)}: {link}")
    return broken


def test_links_resolve() -> None:
    documents = tracked_files("*.md")
    assert documents
    assert [link for document in documents for link in broken_links(document)] == []


SECTIONS = ("targets", "otlp", "archive", "leader", "limits")


def test_the_readme_names_every_setting() -> None:
    section = (
        (ROOT / "README.md").read_text("utf-8").partition("| file | environment |")[2].partition("\n\n")[0]
    )
    keys: list[str] = []
    for prefix, model in (
        ("", config._RawConfig),
        ("targets[].", config_targets.RawTarget),
        ("targets[].discover.", config_targets.RawDiscover),
        ("otlp.", config._RawOtlp),
        ("archive.", config_archive.RawArchive),
        ("limits.", config_limits.RawLimits),
        ("leader.", config_leader.RawLeader),
    ):
        keys += [prefix + name for name in model.model_fields if prefix + name not in SECTIONS]
    assert sorted(re.findall(r"`([a-z_.\[\]]+)`", "\n".join(column(section, 1)))) == sorted(keys)
    named = re.findall(r"`([A-Z_]+)`", "\n".join(column(section, 2)))
    assert sorted(named) == sorted(config.ENVIRONMENT)


def column(table: str, number: int) -> list[str]:
    return [line.split("|")[number] for line in table.splitlines() if line.startswith("|")]


def test_files_that_a_bench_names_exist() -> None:
    named = {
        (bench, name)
        for bench in tracked_files("bench/*.py")
        for name in re.findall(r"[\w-]+(?:/[\w.-]+)+\.\w+", bench.read_text("utf-8"))
    }
    assert named
    assert [f"{bench.name}: {name}" for bench, name in sorted(named) if not (ROOT / name).exists()] == []


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        found += [f"{path.relative_to(ROOT)}: {word}" for word in FORBIDDEN if word in text]
    assert found == []
