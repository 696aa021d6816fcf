"""Run the `pybroker` command for as long as the process that started it lives.

    python -m pybroker.demo.attached worker --database-url ...

Standard input is a pipe whose other end the starter holds and never writes to. It closes when the starter
ends, by whatever means, a `kill -9` included, and then this process ends at once: a worker loses nothing by
that.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.metadata import entry_points


def _end_with_starter() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


def main() -> None:
    """Watch standard input, and run the installed command with this process's arguments."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    # Looked up as a shell would find it: the demo uses the command, it does not depend on how it is made.
    (command,) = entry_points(group="console_scripts", name="pybroker")
    sys.exit(command.load()())


if __name__ == "__main__":
    main()
