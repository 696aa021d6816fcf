"""Every table has a replica identity, so that a publication for all tables stops nobody.

Revision ID: pybroker_0029
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0029"
down_revision = "pybroker_0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give each table a replica identity."""
    run_revision_sql("0029_replica_identities.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
