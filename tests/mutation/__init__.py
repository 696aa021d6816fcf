"""Mistakes that a careless hand could make, and the tests that have to find them."""
