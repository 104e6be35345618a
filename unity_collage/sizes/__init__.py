"""Sizes that are known when the program runs: a plan for each of some sample sizes, and one for all others."""
