"""Compute the digest of the sources of one native library, and write it as a C++ header.

CMake calls this at build time: ``source_digest.py SOURCES LIBRARY HEADER``. The digest is that of the contents and the
relative paths, so equal sources have equal digests on every machine.
"""

import hashlib
import sys
from pathlib import Path

FOLDERS = {
    "runtime": "base",
    "onednn": "onednn",
    "openblas": "openblas",
    "kernels": "kernels",
    "cuda": "cuda",
    "sessions": "sessions",
}
"""The folder of each library's sources. The headers of ``base`` are part of every library."""

DIGITS = 16


def files_of(sources: Path, library: str) -> list[str]:
    """The files that ``library`` is built from, relative to ``sources`` and sorted."""
    patterns = (f"{FOLDERS[library]}/*.cc", f"{FOLDERS[library]}/*.h", "base/*.h")
    return sorted(
        {path.relative_to(sources).as_posix() for pattern in patterns for path in sources.glob(pattern)}
    )


def source_digest(sources: Path, library: str) -> str:
    """The first digits of the SHA-256 of the names and contents of the sources of ``library``."""
    total = hashlib.sha256()
    for file in files_of(sources, library):
        total.update(f"{file} {hashlib.sha256((sources / file).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:DIGITS]


def header(digest: str) -> str:
    """The header that a library's ``version.cc`` includes."""
    return f'#pragma once\n\nnamespace collage {{\nconstexpr char kSourceDigest[] = "{digest}";\n}}\n'


if __name__ == "__main__":
    folder, name, target = sys.argv[1:]
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(header(source_digest(Path(folder), name)), encoding="utf-8")
