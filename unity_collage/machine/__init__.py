"""This machine: caches, measured peaks, the environment of a measuring process."""
