"""Triggers fire in a session that replicates too, as a restore or a sync is.

Revision ID: pybroker_0031
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0031"
down_revision = "pybroker_0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Lock what triggers are made on anew."""
    run_revision_sql("0031_always.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
