"""What code is generated for."""

from . import codegen as codegen
from .target import Target as Target
from .target import TargetKind as TargetKind
