"""Spark for pybroker's messages: a data source for pipelines, and a session that finds its Java.

    from pybroker.spark import BrokerDataSource, start_session

    spark = start_session("local[4]")
    spark.dataSource.register(BrokerDataSource)
    messages = spark.readStream.format("pybroker").option("queue", "fulfilment").load()

`java` finds or supplies Java, `session` starts Spark with it. `data_source` is what Spark calls; `source`
reads by way of `staging`, `sink` writes. docs/spark.md tells what each option means and what is promised.
Needs the extra `spark`.
"""

from pybroker.spark.data_source import BrokerDataSource
from pybroker.spark.java import JavaNotFoundError
from pybroker.spark.session import start_session
from pybroker.spark.staging import finish_batch, install

__all__ = ["BrokerDataSource", "JavaNotFoundError", "finish_batch", "install", "start_session"]
