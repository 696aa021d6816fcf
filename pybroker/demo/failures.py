"""What can keep the demo from being played."""


class DemoError(RuntimeError):
    """The demo cannot start or go on; the text says why and what to do."""
