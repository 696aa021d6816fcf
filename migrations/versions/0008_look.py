"""A worker's look says more: moves, traces, the endpoint.

Revision ID: pybroker_0008
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0008"
down_revision = "pybroker_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make way for the new look: a function can't get more columns."""
    run_revision_sql("0008_look.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
