"""What keeps a test from being run."""


class ThroughputError(Exception):
    """The test bed or a cell failed; the message says why."""
