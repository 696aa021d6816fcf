"""What workers say of themselves is logged, so that a standby can read its views.

Revision ID: pybroker_0005
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0005"
down_revision = "pybroker_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of workers and readers logged, and drop ALTER QUEUE's old form."""
    run_revision_sql("0005_rows.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
