"""Latency of several runtimes on one model, each in a process of its own, in interleaved rounds."""

from .against import race
from .contestant import Contestant, Missing
from .rounds import interleaved, random_feeds, speedup
from .runtimes import OURS, PEERS

__all__ = ["OURS", "PEERS", "Contestant", "Missing", "interleaved", "race", "random_feeds", "speedup"]
