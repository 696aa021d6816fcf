"""Internal activation: starts the procedures of queues that have messages.

The monitors themselves are in the database (`sql/activation/step_monitor.sql` tells their rules), one for all
workers of it. `monitors` looks at them and starts what is due, `reader` runs a queue's procedure once, and
`output` writes what it says where it can be queried.
"""

from pybroker.workers.activation.monitors import Activation
from pybroker.workers.activation.reader import READER_NAME

__all__ = ["READER_NAME", "Activation"]
