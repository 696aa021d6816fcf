"""Procedures, functions and triggers of T-SQL as PL/pgSQL in the database."""
