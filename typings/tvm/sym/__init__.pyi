"""Arithmetic on expressions."""

from .analyzer import Analyzer as Analyzer
from .pattern import detect_linear_equation as detect_linear_equation
