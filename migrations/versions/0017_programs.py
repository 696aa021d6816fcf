"""Retries of failing messages, and programs that say what they read.

Revision ID: pybroker_0017
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0017"
down_revision = "pybroker_0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the due times of retries, and the table of service programs."""
    run_revision_sql("0017_programs.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
