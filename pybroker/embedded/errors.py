"""The error that a caller of the embedded server can meet."""


class EmbeddedServerError(RuntimeError):
    """An embedded server could not be found, started, used or stopped; the text says why and what to do."""
