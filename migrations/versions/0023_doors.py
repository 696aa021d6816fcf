"""What waits for one queue keeps no look long, and no other queue waiting.

Revision ID: pybroker_0023
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0023"
down_revision = "pybroker_0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Say of what waits which queue it waits for."""
    run_revision_sql("0023_doors.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
