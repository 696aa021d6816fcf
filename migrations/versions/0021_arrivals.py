"""A counter of what arrives can be put back.

Revision ID: pybroker_0021
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0021"
down_revision = "pybroker_0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to the counters, and drop the function that was told where they are."""
    run_revision_sql("0021_arrivals.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
