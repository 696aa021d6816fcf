"""Destinations without a dialog are removed, and what moved is brought home in turns.

Revision ID: pybroker_0026
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0026"
down_revision = "pybroker_0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add how far the walks are."""
    run_revision_sql("0026_walks.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
