"""Requests that nobody answers end, and dialogs get their broker in turns.

Revision ID: pybroker_0024
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0024"
down_revision = "pybroker_0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Say when the dynamic routing service was asked, and where each destination has its turn."""
    run_revision_sql("0024_requests.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
