"""Latency of several runtimes on one model, each in a process of its own, in interleaved rounds."""

from .contestant import Contestant, Missing
from .peers import OURS, PEERS
from .race import race
from .rounds import interleaved, random_feeds, speedup

__all__ = ["OURS", "PEERS", "Contestant", "Missing", "interleaved", "race", "random_feeds", "speedup"]
