"""The product as a user starts it: the demo, the docs, packages, benchmarks, faults."""
