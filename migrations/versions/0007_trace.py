"""Traces: who watches what, and the events that were seen.

Revision ID: pybroker_0007
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0007"
down_revision = "pybroker_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the two tables of traces."""
    run_revision_sql("0007_trace.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
