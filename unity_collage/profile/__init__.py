"""Whole programs in processes of their own: timed in turns, or kernel by kernel."""
