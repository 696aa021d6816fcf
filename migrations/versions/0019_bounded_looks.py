"""What a worker looks at each minute or second has an index of what is due.

Revision ID: pybroker_0019
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0019"
down_revision = "pybroker_0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes and what they rest on."""
    run_revision_sql("0019_bounded_looks.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
