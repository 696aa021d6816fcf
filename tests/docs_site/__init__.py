"""What `make docs` builds from more than the pages of docs/: the SQL reference and the table of errors."""
