"""Connections with other workers: the endpoint, TLS, who may connect, sessions, whose batch is next."""
