"""What Spark forks its Python processes from: what a test client needs is imported once, not 150 times."""

import msgspec  # noqa: F401
import psycopg  # noqa: F401
from pyspark.daemon import manager

import pybroker.throughput.clients  # noqa: F401

if __name__ == "__main__":
    manager()
