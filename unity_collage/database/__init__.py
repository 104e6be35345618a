"""Where measured costs are kept: SQLite or PostgreSQL."""
