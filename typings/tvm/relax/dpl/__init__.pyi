"""Patterns of data flow."""

from .pattern import AndPattern as AndPattern
from .pattern import AttrPattern as AttrPattern
from .pattern import CallPattern as CallPattern
from .pattern import ConstantPattern as ConstantPattern
from .pattern import DataTypePattern as DataTypePattern
from .pattern import DFPattern as DFPattern
from .pattern import ExprPattern as ExprPattern
from .pattern import OrPattern as OrPattern
from .pattern import ShapePattern as ShapePattern
from .pattern import TupleGetItemPattern as TupleGetItemPattern
from .pattern import TuplePattern as TuplePattern
from .pattern import TypePattern as TypePattern
from .pattern import WildcardPattern as WildcardPattern
from .pattern import is_const as is_const
from .pattern import is_op as is_op
from .pattern import wildcard as wildcard
