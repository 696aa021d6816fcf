"""``python -m pybroker``: the command line, where the console script is not on the PATH."""

from pybroker.commands import main

main()
