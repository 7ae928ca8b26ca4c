"""What went wrong, in a line: what Spark says of an error is pages, and begins with where it was met."""

from __future__ import annotations

# How a line begins with what was raised in Java, and with what caused that.
_RAISED, _CAUSED_BY = ": ", "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"
_LONGEST = 300  # characters


def cause(error: BaseException) -> str:
    """Kind and text of the error; of one from within Java or a Python worker those of the first cause."""
    lines = str(error).strip().splitlines() or [""]
    java = [line for line in lines if line.startswith((_RAISED, _CAUSED_BY))]
    if java:
        found = java[-1].removeprefix(_CAUSED_BY).removeprefix(_RAISED)
    elif any(line.strip() == _TRACEBACK for line in lines):
        frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
        after = lines[frames[-1] + 1 :] if frames else lines
        found = next((line for line in after if line.strip()), lines[0])
    else:
        found = f"{type(error).__name__}: {lines[0]}"
    return found.strip()[:_LONGEST].rstrip(".")
