"""Patterns that others have registered with TVM, as a backend."""
