"""Child processes that answer messages."""
