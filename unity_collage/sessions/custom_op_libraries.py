"""Libraries of custom operators in sessions of ONNX Runtime's package for Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import CollageError, first_line
from ..runtime.custom_op_libraries import CustomOpLibrary


def session_options(libraries: Iterable[CustomOpLibrary]) -> Any:
    """Options of a session that has the operators of ``libraries``.

    Raises CollageError, with the reason, for a file that is not such a library.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for library in libraries:
        try:
            options.register_custom_ops_library(library["path"])
        except Exception as error:  # the runtime's errors have no common base class
            raise CollageError(
                f"{library['path']} is not a library of custom operators: {first_line(error)}"
            ) from error
    return options
