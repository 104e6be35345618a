"""Converters by subject; each module has a table ``CONVERTERS`` by operator."""
