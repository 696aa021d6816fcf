"""What Spark calls: `spark.dataSource.register(BrokerDataSource)`, then `format("pybroker")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pybroker.spark.options import read_options, write_options
from pybroker.spark.sink import BatchWriter, SinkError, StreamWriter
from pybroker.spark.source import SCHEMA, BatchReader, StreamReader
from pybroker.spark.staging import check_reading

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BrokerDataSource(DataSource):
    """Messages of a queue as rows, and rows as messages, in batches and in streams."""

    def __init__(self, options: dict[str, str]) -> None:
        """Refuse options that are no use: Spark makes one at `load()`, before it plans anything.

        Raises:
            OptionError: One can't be used, by its name.
        """
        super().__init__(options)
        if "queue" in options:
            check_reading(read_options(options))

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pybroker"

    def schema(self) -> str:
        """Return a message's columns."""
        # Spark asks where something is read; without a queue nothing can be.
        read_options(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """Read a batch from a queue."""
        return BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Read a queue as a stream."""
        return StreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Send a batch."""
        return BatchWriter(write_options(_appending(self.options, overwrite=overwrite)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Send a stream."""
        return StreamWriter(write_options(_appending(self.options, overwrite=overwrite)), schema)


def _appending(given: Any, *, overwrite: bool) -> Any:
    if overwrite:
        raise SinkError("What was sent can't be overwritten; use the mode 'append'.")
    return given
