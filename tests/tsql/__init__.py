"""Scripts of SQL Server, translated and run."""
