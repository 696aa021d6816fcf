"""What SEND must know of a dialog stands on the row that it locks.

Revision ID: pybroker_0004
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0004"
down_revision = "pybroker_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the send plans and their marks; a dialog that is open gets its plan by its next SEND."""
    run_revision_sql("0004_send_plans.sql")


def downgrade() -> None:
    """Refuse: the functions of the older release keep another rule of what SEND may know."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
