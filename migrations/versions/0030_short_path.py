"""The first message of a dialog takes a shorter way.

Revision ID: pybroker_0030
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0030"
down_revision = "pybroker_0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop a column that RECEIVE works out, and the functions whose arguments changed."""
    run_revision_sql("0030_short_path.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
