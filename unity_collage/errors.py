"""The errors that users see: their text says what to do.

They are registered with the FFI, so that one raised inside a pass comes out of it as what it is.
"""

from __future__ import annotations

from tvm_ffi import register_error

# Ctrl-C while a pass runs: without this it comes out of the pass as a RuntimeError.
register_error("KeyboardInterrupt", KeyboardInterrupt)


@register_error
class CollageError(Exception):
    """Base of all errors of this package."""


@register_error
class MissingAnnotation(CollageError):
    """A pass found no annotation of the pass that has to run before it."""


@register_error
class InvalidAnnotation(CollageError):
    """An annotation is not what its pass writes: somebody has edited it."""


@register_error
class UnknownBackend(CollageError):
    """A backend was named that nobody provides."""


@register_error
class UnavailableBackend(CollageError):
    """A backend was asked for that cannot run here; the text says why."""


@register_error
class NoPlan(CollageError):
    """Some operator is in no candidate and TVM cannot evaluate it either."""


@register_error
class ModelError(CollageError):
    """A model file cannot be read or imported."""


@register_error
class DatabaseError(CollageError):
    """The database of costs cannot be opened, read or written."""


@register_error
class MissingCost(CollageError):
    """A cost is not in a database that was said to be complete."""


def first_line(error: BaseException) -> str:
    """What somebody else's error says, as one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
