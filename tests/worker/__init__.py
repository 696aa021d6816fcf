"""A worker, a client or a service program beside one database."""
