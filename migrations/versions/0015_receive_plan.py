"""What RECEIVE returns of a conversation stands on the row that it locks.

Revision ID: pybroker_0015
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0015"
down_revision = "pybroker_0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the receive plans; a dialog that is open gets its plan by one of its next RECEIVEs."""
    run_revision_sql("0015_receive_plan.sql")


def downgrade() -> None:
    """Refuse: the functions of the older release drop no such plan."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
