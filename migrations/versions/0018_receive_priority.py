"""Receive plans are made anew, as they held the precedence where the priority belongs.

Revision ID: pybroker_0018
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0018"
down_revision = "pybroker_0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Mark all plans."""
    run_revision_sql("0018_receive_priority.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
