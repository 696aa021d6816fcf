"""The queue of what the broker itself answers: ServiceEcho, ServiceDiagnostic.

Revision ID: pybroker_0010
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0010"
down_revision = "pybroker_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the queue, which nobody receives from."""
    run_revision_sql("0010_system_contracts.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
