"""Validation of messages by what the server can't do: XML schemas, and XML where it was built without libxml.

`Validation` asks one database what waits for it and says what came of it. The bodies are read in a process of
its own (`examiner`), which `Examination` starts, feeds and kills: a body may be made to cost time and memory.
"""

from pybroker.workers.validation.examination import Limits
from pybroker.workers.validation.validation import Validation

__all__ = ["Limits", "Validation"]
