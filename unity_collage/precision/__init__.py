"""Narrow storage with float32 arithmetic: which values of a function are kept in 16 bits, and the casts for it."""
