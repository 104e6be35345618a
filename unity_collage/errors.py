"""The errors and warnings that users see: their text says what to do.

Errors are registered with the FFI, so an error that is raised inside a pass keeps its class.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from inspect import currentframe
from pathlib import Path

from .ffi import tvm_ffi

register_error = tvm_ffi.register_error

# Without these, Ctrl-C, the TimeoutError of a signal handler of the user, and a warning that -W error makes an error
# become a RuntimeError during a pass.
register_error("KeyboardInterrupt", KeyboardInterrupt)
register_error("TimeoutError", TimeoutError)
register_error("UserWarning", UserWarning)


@register_error
class CollageError(Exception):
    """Base of all errors of this package."""


@register_error
class MissingAnnotation(CollageError):
    """A pass did not find the annotation of the pass that must run before it."""


@register_error
class InvalidAnnotation(CollageError):
    """An annotation is not what its pass writes: it was edited."""


@register_error
class UnknownBackend(CollageError):
    """No installed package and no table of TVM provides the backend that was named."""


@register_error
class UnavailableBackend(CollageError):
    """The backend that was named cannot run here; the text says why."""


@register_error
class NoPlan(CollageError):
    """An operator is in no candidate, and TVM cannot evaluate it either."""


@register_error
class ModelError(CollageError):
    """A model file cannot be read or imported."""


@register_error
class DatabaseError(CollageError):
    """The database of costs cannot be opened, read or written."""


@register_error
class MissingCost(CollageError):
    """A database that was declared complete does not contain a cost."""


def is_of_user(error: BaseException) -> bool:
    """Whether an error is the TimeoutError of a signal handler or a callback of the user, which ends what runs.

    One of the system, as of a file on a server, has a number.
    """
    return isinstance(error, TimeoutError) and error.errno is None


def warn(text: str) -> None:
    """Warn of ``text`` at the line of the user, which called this package, or TVM or PyTorch that called it."""
    level, of_user, frame = 1, 1, currentframe()
    while frame is not None:
        level += 1
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_OF_USERS:
            of_user = level
        frame = frame.f_back
    warnings.warn(text, stacklevel=of_user)


_NOT_OF_USERS = (__name__.partition(".")[0], "tvm", "tvm_ffi", "torch")
"""Packages whose functions may be between the line of a user and a warning."""

_PLAIN = (
    (r"\s*# Metadata omitted\. Use show_meta=True in script\(\) method to show it\.", ""),
    (r'metadata\["[\w.]+"\]\[\d+\]', "a constant"),
    (r'ir\.Op\(span=[^\n]*?name="(?:relax\.)?([\w.]+)"[^\n]*?support_level=\d+\)', r"\1"),
    (r'R\.Tensor\(\(([^()]*?),?\), dtype="(\w+)"\)', r"\2[\1]"),
    (r"R\.shape\((\[[^\]]*\])\)", r"\1"),
    (r"T\.u?int\d+\((-?\d+)\)", r"\1"),
    (r"\bT\.((?:bfloat|float|uint|int|bool)\d*)\b(?!\()", r"\1"),
    (r"Check failed: \([^\n]*?\) is false: (?=\S)", ""),
    (r"(?<=[.,]) {2,}", " "),
)
"""The parts of TVM's error texts that are not words, and the text that replaces each."""


def in_words(text: str) -> str:
    """An error's text without TVM's internal notation for operators, shapes, types and constants."""
    for pattern, plain in _PLAIN:
        text = re.sub(pattern, plain, text)
    return text.strip()


def first_line(error: BaseException) -> str:
    """The first line of an error's text :func:`in_words`, or the name of its class if it has no text."""
    lines = in_words(str(error)).splitlines()
    return lines[0] if lines else type(error).__name__


def last_line(error: BaseException) -> str:
    """The last line of an error's text :func:`in_words`, where compilers put the cause; empty if it has no text."""
    lines = in_words(str(error)).splitlines()
    return lines[-1] if lines else ""


def with_names(text: str, name: str, known: Sequence[str], most: int = 100) -> str:
    """``text`` about an unknown ``name``, the known one that it is close to, and the first ``most`` of all.

    ``no backend named 'onedn'; did you mean onednn? There are: onednn, tvm``
    """
    if close := closest(name, known, 1):
        text += f"; did you mean {close[0]}?"
    if not most or not known:
        return text
    return f"{text}{' There' if close else '; there'} are: {', '.join(known[:most])}"


def is_file(path: str | Path) -> bool:
    """Whether ``path`` is a file; False where that cannot be seen: the name is too long, or its folder is closed."""
    with suppress(OSError):
        return Path(path).is_file()
    return False


def not_a_file(path: str | Path) -> str:
    """The message for a ``path`` that is not a file, with the closest name in its folder.

    ``modle.so is not a file; did you mean model.so?``
    """
    path = Path(path)
    try:
        if path.is_dir():
            return f"{path} is not a file but a folder"
        there = sorted(each.name for each in path.parent.iterdir() if each.is_file())
    except OSError:
        there = []
    close = closest(path.name, there, 1)
    return f"{path} is not a file" + (f"; did you mean {path.parent / close[0]}?" if close else "")


def text_in(path: str | Path, expected: str) -> str:
    """The text in a file; raises CollageError where there is none, with what was ``expected`` there.

    ``m.onnx is not a plan in JSON: it is not text``
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CollageError(f"{path} is not {expected}: it is not text") from error
    except OSError as error:
        reason = not_a_file(path) if not is_file(path) else f"{path} cannot be read: {error.strerror}"
        raise CollageError(reason) from error


def closest(name: str, known: Sequence[str], most: int) -> list[str]:
    """At most ``most`` of the ``known`` names that are close to ``name``, the closest first; case is ignored."""
    import difflib  # takes long to import, and is rarely needed

    by_small = {each.lower(): each for each in reversed(known)}
    return [by_small[each] for each in difflib.get_close_matches(name.lower(), by_small, most)]
