"""Runs whole programs in worker processes: timed in turns, or profiled kernel by kernel."""
