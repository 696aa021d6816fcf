"""Functions that lock a group say so in their names.

Revision ID: pybroker_0025
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0025"
down_revision = "pybroker_0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the functions of the old names."""
    run_revision_sql("0025_lock_names.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
