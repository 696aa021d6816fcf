"""The foundation: catalog, endpoints, groups, messages, transmission queue.

Revision ID: pybroker_0001
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0001"
down_revision = None
branch_labels = ("pybroker",)
depends_on = None


def upgrade() -> None:
    """Create the tables, then everything in sql/."""
    run_revision_sql("0001_foundation.sql")


def downgrade() -> None:
    """Refuse: going back would drop conversations."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
