"""Patterns of data flow."""

from .pattern import *
