"""What a migration refuses."""

from __future__ import annotations

from pybroker.errors import BrokerError


class MigrationError(BrokerError):
    """The database can't be migrated this way; nothing was changed."""
