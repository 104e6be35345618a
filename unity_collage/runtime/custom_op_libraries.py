"""Shared libraries with operators of the user's own, which ONNX Runtime registers where a program runs."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ..errors import CollageError, is_file, not_a_file

_KIND = "collage.onnxruntime"
"""The kind of the modules that name such libraries."""


class CustomOpLibrary(TypedDict):
    """A library as a program knows it, which is also its JSON."""

    path: str
    """Absolute, and without symbolic links."""
    digest: str
    """The SHA-256 of the file, in hexadecimal."""


CustomOpLibraries = str | Path | Sequence[str | Path]
"""The path of a library, or several, as users give them."""


def libraries_at(paths: CustomOpLibraries) -> list[CustomOpLibrary]:
    """The libraries in these files, each once; raises CollageError for a path without a file that can be read."""
    each = [paths] if isinstance(paths, (str, Path)) else paths
    return [_library_at(path) for path in dict.fromkeys(Path(os.path.realpath(path)) for path in each)]


def _library_at(path: Path) -> CustomOpLibrary:
    if not is_file(path):
        raise CollageError(f"the library of custom operators {not_a_file(path)}")
    try:
        return {"path": str(path), "digest": _digest_of(path)}
    except OSError as error:
        raise CollageError(
            f"the library of custom operators {path} cannot be read: {error.strerror}"
        ) from error


def libraries_in(modules: Iterable[Any]) -> list[CustomOpLibrary]:
    """The libraries that sessions in these runtime modules register, each once."""
    texts = [json.loads(module.inspect_source()) for module in modules if str(module.kind) == _KIND]
    found = [library for text in texts for model in text["models"] for library in model.get("libraries", ())]
    return list({library["path"]: library for library in found}.values())


def files_of(libraries: Iterable[CustomOpLibrary]) -> str:
    """The file names of ``libraries``, for messages."""
    return ", ".join(Path(library["path"]).name for library in libraries)


def why_not_here(libraries: Iterable[CustomOpLibrary]) -> str | None:
    """Why a program that registers ``libraries`` cannot run here, or None; loads nothing."""
    for library in libraries:
        path, needs = Path(library["path"]), f"it registers the library of custom operators {library['path']}"
        try:
            if _digest_of(path) != library["digest"]:
                return f"{needs}, which has changed since: compile the model again"
        except OSError as error:
            return f"{needs}, which cannot be read: {error.strerror}"
        if reason := why_another(path):
            return f"{needs}: {reason}"
    return None


def why_another(path: str | Path) -> str | None:
    """Why this process would run other operators than those in the file ``path``, or None.

    The loader knows libraries by their paths. A file that was replaced stays mapped while a session has it.
    """
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = [line.split(maxsplit=5) for line in lines]
    inodes = {int(each[4]) for each in mapped if each[5:] in ([str(path)], [f"{path} (deleted)"])}
    if inodes <= {Path(path).stat().st_ino}:
        return None
    return f"this process still runs an earlier {Path(path).name}: start a new one, or rename the library"


def _digest_of(path: Path) -> str:
    from hashlib import sha256  # takes long to import, and most programs need none

    return sha256(path.read_bytes()).hexdigest()
