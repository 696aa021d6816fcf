"""Event notifications have several events, and names of their scope.

Revision ID: pybroker_0027
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0027"
down_revision = "pybroker_0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give event notifications several events, and names of their scope."""
    run_revision_sql("0027_events.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
