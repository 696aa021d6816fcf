"""Trace contexts, which travel beside messages.

Revision ID: pybroker_0012
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0012"
down_revision = "pybroker_0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of trace contexts."""
    run_revision_sql("0012_traceparents.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
