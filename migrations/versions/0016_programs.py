"""Retries of failing messages, and programs that say what they read.

Revision ID: pybroker_0016
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0016"
down_revision = "pybroker_0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the due times of retries, and the table of service programs."""
    run_revision_sql("0016_programs.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
