"""Rows in a PostgreSQL database, through asyncpg."""
