"""Programs count for the role that announced them, so that no role uses up the places of others.

Revision ID: pybroker_0017
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0017"
down_revision = "pybroker_0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Remember who announced a program."""
    run_revision_sql("0017_announcers.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
