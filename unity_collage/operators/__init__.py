"""Operators that Relax does not have: whole loops, which as operators of their own are one kernel."""

from . import recurrent
from .recurrent import CELLS, gru, lstm, rnn

recurrent.register()

__all__ = ["CELLS", "gru", "lstm", "rnn"]
