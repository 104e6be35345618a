"""The seal of a saved program: facts about it and a digest, behind the library in its file.

The dynamic loader trusts a file: a truncated library ends the process, and any library can be opened. So the seal is
verified before the loader opens the file. A library ends at its section headers, and loaders ignore what follows; tools
that rewrite libraries, such as ``strip``, remove it.

A file is ``library, facts (JSON), footer``. The footer has the lengths of the first two, the SHA-256 of both, and a
mark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

Facts = Mapping[str, Any]
"""What a program knows about itself, as JSON."""

_FOOTER = Struct("<QQ32s16s")
_MARK = b"unity_collage 1\n"
_CHUNK_BYTES = 1 << 20


def seal(path: Path, facts: Facts) -> None:
    """Append ``facts`` and the footer to the library at ``path``."""
    text = json.dumps(facts, ensure_ascii=True).encode()
    with path.open("r+b") as file:
        digest = _digest(file)
        nbytes = file.tell()
        digest.update(text)
        file.write(text + _FOOTER.pack(nbytes, len(text), digest.digest(), _MARK))


def why_not_sealed(file: BinaryIO) -> str | None:
    """Why ``file`` is not a program as it was saved, or None."""
    footer = _footer(file)
    if footer is None:
        return "it is not a saved program of this version, or only a part of one"
    nbytes, length, expected = footer
    file.seek(0)
    if _digest(file, nbytes + length).digest() != expected:
        return "it has changed since it was saved"
    return None


def facts_in(file: BinaryIO) -> dict[str, Any]:
    """The facts in a file that :func:`why_not_sealed` has nothing against."""
    footer = _footer(file)
    assert footer is not None
    nbytes, length, _ = footer
    file.seek(nbytes)
    return json.loads(file.read(length))


def _footer(file: BinaryIO) -> tuple[int, int, bytes] | None:
    """The bytes of the library, of the facts, and the digest; None if the file does not end in a footer of its size."""
    size = file.seek(0, 2)
    if size < _FOOTER.size:
        return None
    file.seek(size - _FOOTER.size)
    nbytes, length, digest, mark = _FOOTER.unpack(file.read(_FOOTER.size))
    return (nbytes, length, digest) if mark == _MARK and nbytes + length + _FOOTER.size == size else None


def _digest(file: BinaryIO, nbytes: int | None = None) -> Any:
    """The digest of the next ``nbytes``, or of all that follow."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES if nbytes is None else min(_CHUNK_BYTES, nbytes)):
        digest.update(chunk)
        nbytes = None if nbytes is None else nbytes - len(chunk)
    return digest
