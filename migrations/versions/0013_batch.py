"""A batch as one value.

Revision ID: pybroker_0013
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0013"
down_revision = "pybroker_0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the type of a batch, and drop the function that returned a row."""
    run_revision_sql("0013_batch.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
