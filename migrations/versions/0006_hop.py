"""deliver_plain is told where the counters of the dialogs are.

Revision ID: pybroker_0006
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0006"
down_revision = "pybroker_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop deliver_plain's old form."""
    run_revision_sql("0006_hop.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
