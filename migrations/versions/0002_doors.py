"""Close the doors: the caller is proven, never believed.

Revision ID: pybroker_0002
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0002"
down_revision = "pybroker_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of vouchers, drop what believed the session's role."""
    run_revision_sql("0002_doors.sql")


def downgrade() -> None:
    """Refuse: going back would open the doors again."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
