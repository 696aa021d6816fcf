"""What was done from a console, and how it ended.

Revision ID: pybroker_0011
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0011"
down_revision = "pybroker_0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of what was done from a console."""
    run_revision_sql("0011_console.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
