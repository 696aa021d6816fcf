"""Lifetimes that have an end.

Revision ID: pybroker_0002_definitions
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0002_definitions"
down_revision = "pybroker_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Mend what a far broker could bring before lifetimes were bounded on arrival."""
    run_revision_sql("0002_definitions.sql")


def downgrade() -> None:
    """Refuse, as the revision before does."""
    raise NotImplementedError("pybroker does not downgrade: restore a backup")
