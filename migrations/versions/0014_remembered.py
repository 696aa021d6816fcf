"""What a worker remembers.

Revision ID: pybroker_0014
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0014"
down_revision = "pybroker_0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the functions that took batches in other forms."""
    run_revision_sql("0014_remembered.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
