"""Programs from Debian's archive for the tests, without installing anything.

What the system has is used. What it lacks is downloaded by the system's own apt, signatures checked,
with state and cache in a folder of ours, and unpacked beside it: dpkg's database stays as it is, no
package script runs and no service starts. It works as root and as any other user. A program of
FIXED_FOLDERS has to be started in the folder that `usr` is in.

`python -m tests.support.debian` fetches all that the tests want ahead of time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.tools import Postgres, Program, Unavailable, locked, tools_folder

DPKG_STATUS = Path("/var/lib/dpkg/status")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# Program -> Debian package. Why each package: docs/dependencies.md.
PROGRAMS = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "chromium": "chromium",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "pgbouncer": "pgbouncer",
    "pgqd": "pgqd",
    "prometheus-postgres-exporter": "prometheus-postgres-exporter",
}
# Program -> a folder that Debian compiled into it. Of the same length is its name as seen from the tree.
FIXED_FOLDERS = {"prometheus-alertmanager": b"/usr/share/prometheus/alertmanager"}
POSTGRES_VERSION = 15
# Extensions that tests want in that PostgreSQL: all of them in one unpacked server.
EXTENSIONS = tuple(
    f"postgresql-{POSTGRES_VERSION}-{name}" for name in ("cron", "pgq3", "plpgsql-check")
)

_APT_OPTIONS = {
    "Debug::NoLocking": "1",  # the locks are of the system's folders, which we don't touch
    "APT::Sandbox::User": "root",  # as root: the sandbox user can't write to our folder
    "Acquire::Languages": "none",
    "Acquire::http::Timeout": "20",
    "Acquire::Retries": "2",
}
_APT_TIMEOUT = 600  # seconds, for one run of apt-get
_KEPT_FIELDS = ("Package:", "Status:", "Architecture:", "Multi-Arch:", "Version:", "Provides:")


def find_program(name: str) -> Program:
    """A program of `PROGRAMS`, installed or fetched now; raises Unavailable."""
    installed = shutil.which(name)
    if installed:
        return Program(Path(installed))
    tree = fetch(PROGRAMS[name])
    path = next((path for path in (tree / "usr/bin" / name, tree / "usr/sbin" / name) if path.exists()), None)
    if path is None:
        raise Unavailable(f"Debian's package {PROGRAMS[name]} has no program {name}")
    return Program(path, library_env(tree))


def postgres(version: int = POSTGRES_VERSION, *, extensions: Sequence[str] = ()) -> Postgres:
    """The PostgreSQL of Debian, with extensions by package name; raises Unavailable.

    Extensions can't be added to an installed server from outside. If one isn't installed, a whole
    server is unpacked with all of them.
    """
    server = f"postgresql-{version}"
    bindir = Path("usr/lib/postgresql") / str(version) / "bin"
    installed = Path("/") / bindir
    if (installed / "postgres").exists() and all(_is_installed(package) for package in extensions):
        return Postgres(installed)
    if not Path("/usr/share/zoneinfo/UTC").exists():
        raise Unavailable("Debian's PostgreSQL needs time zones, and the package tzdata isn't installed")
    tree = fetch(server, *extensions)
    return Postgres(tree / bindir, library_env(tree))


def fetch(*packages: str, dpkg_status: Path = DPKG_STATUS) -> Path:
    """Folder in which these packages, and what they need beyond the system's, are unpacked.

    Takes the system's word for what is installed; `dpkg_status` is another file to believe.
    """
    key = (tuple(sorted(packages)), dpkg_status)
    if key in _failures:  # asked again for every test: the answer stays the same
        raise Unavailable(_failures[key])
    tree = tools_folder("debian") / "+".join(sorted(packages))
    try:
        with locked(tools_folder("debian")):
            if not tree.is_dir():
                _unpack(_download(packages, dpkg_status), tree)
    except Unavailable as error:
        _failures[key] = str(error)
        raise
    return tree


_failures: dict[tuple[tuple[str, ...], Path], str] = {}


def library_env(tree: Path) -> dict[str, str]:
    """Environment that lets programs in `tree` find the shared libraries there."""
    folders = [*tree.glob("usr/lib/*-linux-gnu*"), *tree.glob("lib/*-linux-gnu*")]
    inherited = os.environ.get("LD_LIBRARY_PATH")
    path = [*map(str, folders), *([inherited] if inherited else [])]
    return {"LD_LIBRARY_PATH": ":".join(path)} if folders else {}


def status_without(packages: Sequence[str], status: Path = DPKG_STATUS) -> str:
    """dpkg's status file as if these packages weren't installed.

    What the others need is left out too: whether this machine's packages fit together is not our
    concern, and apt would refuse all work if they don't.
    """
    stanzas = status.read_text("utf-8").split("\n\n")
    kept = (stanza for stanza in stanzas if _field(stanza, "Package") not in packages)
    return "\n\n".join(
        "\n".join(line for line in stanza.splitlines() if line.startswith(_KEPT_FIELDS)) for stanza in kept
    )


def _download(packages: Sequence[str], dpkg_status: Path) -> list[Path]:
    """Download the packages and all that they need, return the package files."""
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    if missing or not dpkg_status.exists():
        raise Unavailable(f"{_these(packages)}: not installed, and no apt here to fetch it with")
    apt = tools_folder("debian") / "apt"
    archives = apt / "cache/archives"
    shutil.rmtree(archives, ignore_errors=True)  # left by an interrupted run
    for folder in (apt / "state/lists/partial", archives / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    # Wanted packages count as absent, or apt would leave out those that are installed.
    status = apt / "status"
    status.write_text(status_without(packages, dpkg_status), "utf-8")

    options: dict[str, str | Path] = {
        "Dir::State": apt / "state",
        "Dir::State::status": status,
        "Dir::Cache": apt / "cache",
    }
    install = ("install", "--download-only", "--no-install-recommends", "--yes", *packages)
    has_lists = any((apt / "state/lists").glob("*_Packages*"))
    result = apt_get(options, *install) if has_lists else None
    if result is None or result.returncode != 0:  # no lists yet, or too old for what the archive holds
        # Another source of this machine may be out of reach; what counts is the installation.
        update = apt_get(options, "update")
        result = apt_get(options, *install)
        if result.returncode != 0:
            hint = "; apt can't reach all of its sources" if "Failed to fetch" in update.stdout else ""
            raise Unavailable(f"{_these(packages)}: {_apt_errors(result.stdout)}{hint}")
    return sorted(archives.glob("*.deb"))


def apt_get(
    options: Mapping[str, str | Path], *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run apt-get with these options beside ours; raises Unavailable where there is none, or it hangs."""
    given = {**_APT_OPTIONS, **options}
    flags = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
    try:
        return subprocess.run(
            ["apt-get", *flags, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_APT_TIMEOUT,
            env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable("there is no apt here to fetch it with") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"apt-get {arguments[0]} took longer than {_APT_TIMEOUT} s") from None


def archive_of_this_system() -> str:
    """Where the system's own apt gets Debian from; raises Unavailable."""
    targets = apt_get({}, "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages").stdout
    for line in targets.splitlines():
        uri, _, release = line.partition(" ")
        if uri.rstrip("/").endswith("/debian") and "-" not in release:
            return uri
    raise Unavailable("apt has no source of Debian here")


def _unpack(archives: Sequence[Path], tree: Path) -> None:
    """Unpack the package files into `tree`, which appears only when it is complete."""
    partial = tree.with_name(f"{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o755)
    for archive in archives:
        # The loader and the C library belong together, and the loader is the system's.
        if not archive.name.startswith("libc6_"):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(partial)], check=True)
        archive.unlink()
    lead_within(partial)
    for name, folder in FIXED_FOLDERS.items():
        program = partial / "usr/bin" / name
        if program.exists():
            relative = b"usr//" + folder.removeprefix(b"/usr/")
            program.write_bytes(program.read_bytes().replace(folder, relative))
    partial.rename(tree)


def lead_within(tree: Path) -> None:
    """Have links lead to what is in the tree where they name a place of an installed system.

    Without this Java is without its settings, which Debian keeps in /etc, and doesn't start.
    """
    for link in [path for path in tree.rglob("*") if path.is_symlink()]:
        target = link.readlink()
        ours = tree / target.relative_to("/") if target.is_absolute() else None
        if ours is not None and ours.exists():
            link.unlink()
            link.symlink_to(os.path.relpath(ours, link.parent))


@cache
def _is_installed(package: str) -> bool:
    if not DPKG_STATUS.exists():
        return False
    stanzas = DPKG_STATUS.read_text("utf-8").split("\n\n")
    return any(
        _field(stanza, "Package") == package and _field(stanza, "Status") == "install ok installed"
        for stanza in stanzas
    )


def _field(stanza: str, name: str) -> str | None:
    match = re.search(rf"^{name}: (.*)$", stanza, re.MULTILINE)
    return match.group(1) if match else None


def _apt_errors(output: str) -> str:
    errors = [line.removeprefix("E: ") for line in output.splitlines() if line.startswith("E: ")]
    return "; ".join(errors) or "apt-get failed"


def _these(packages: Sequence[str]) -> str:
    return f"Debian's {' '.join(packages)}"


def main() -> int:
    """Fetch all that the tests want and say where it is, or why it can't be had."""
    for name in PROGRAMS:
        try:
            print(f"{name}: {find_program(name).path}")
        except Unavailable as error:
            print(f"{name}: none ({error})")
    for extensions in ((), EXTENSIONS):
        name = " ".join((f"PostgreSQL {POSTGRES_VERSION}", *extensions))
        try:
            print(f"{name}: {postgres(extensions=extensions).bindir}")
        except Unavailable as error:
            print(f"{name}: none ({error})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
