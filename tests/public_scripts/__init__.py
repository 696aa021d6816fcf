"""Public T-SQL scripts, run on fresh databases and compared with what SQL Server would give."""
