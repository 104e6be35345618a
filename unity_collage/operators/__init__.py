"""Operators that Relax does not have: whole loops over a sequence, so that each can be one kernel."""

from . import any_recurrent, recurrent
from .recurrent import CELLS, gru, lstm, rnn

recurrent.register()
any_recurrent.register()

__all__ = ["CELLS", "gru", "lstm", "rnn"]
