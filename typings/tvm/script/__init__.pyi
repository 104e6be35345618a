"""TVMScript: programs as Python text. Its dialects are modules of other packages."""

from typing import Any

from tvm.relax import script as relax
from tvm.tirx import script as tirx

from . import parser

__all__ = ["from_source", "parser", "relax", "tirx"]

def from_source(program: Any, extra_vars: dict[str, Any] | None = None) -> Any: ...
