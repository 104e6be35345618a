"""The database of measured costs: SQLite or PostgreSQL."""
