"""Tensor programs: statements, expressions and functions."""

from tvm.ir import Expr as Expr
from tvm.runtime import convert as convert

from . import analysis as analysis
from . import script as script
from . import stmt as stmt
from . import transform as transform
from .buffer import *
from .build import build as build
from .compilation_pipeline import get_default_tir_pipeline as get_default_tir_pipeline
from .expr import *
from .function import *
from .op import *
from .stmt import *
