"""A query for each catalog view of SQL Server that differs from the broker's own view."""
