"""Event notifications of all queues, and subscriptions that are merged.

Revision ID: pybroker_0009
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0009"
down_revision = "pybroker_0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let a notification be of no queue in particular, with a last event for each."""
    run_revision_sql("0009_fan_in.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
