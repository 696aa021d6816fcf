"""Deterministic simulation: real workers and real statements, but time, network and order are a seed's."""
