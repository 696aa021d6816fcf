"""Who locks a group gets the endpoint as it is then.

Revision ID: pybroker_0028
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0028"
down_revision = "pybroker_0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let lock_group_of return an endpoint."""
    run_revision_sql("0028_held_endpoint.sql")


def downgrade() -> None:
    """Refuse: the functions of an older version are not here."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
