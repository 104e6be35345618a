"""The errors that users see: their text says what to do."""

from __future__ import annotations


class CollageError(Exception):
    """Base of all errors of this package."""


class MissingAnnotation(CollageError):
    """A pass found no annotation of the pass that has to run before it."""


class UnknownBackend(CollageError):
    """A backend was named that nobody provides."""


class UnavailableBackend(CollageError):
    """A backend was asked for that cannot run here; the text says why."""


class NoPlan(CollageError):
    """Some operator is in no candidate and TVM cannot evaluate it either."""


class ModelError(CollageError):
    """A model file cannot be read or imported."""
