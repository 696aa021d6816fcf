"""A worker looks at destinations in turns.

Revision ID: pybroker_0022
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0022"
down_revision = "pybroker_0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the turns."""
    run_revision_sql("0022_turns.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
