"""What makes plans worthless is the value of a sequence, in place of rows that each SEND looks for.

Revision ID: pybroker_0020
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0020"
down_revision = "pybroker_0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forget the plans, as they say when they were made in another type; each dialog makes its own anew."""
    run_revision_sql("0020_plan_mark.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version look for rows."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
