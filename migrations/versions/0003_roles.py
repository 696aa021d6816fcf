"""Rights belong to roles, not to their names: owners, grantees, runners and worker roles.

Revision ID: pybroker_0003
"""

from pybroker.migrations import run_revision_sql

revision = "pybroker_0003"
down_revision = "pybroker_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Convert the columns that name roles, and drop the names of roles that are gone."""
    run_revision_sql("0003_roles.sql")


def downgrade() -> None:
    """Refuse: a role that was renamed would lose its rights, and a new one would have them."""
    raise NotImplementedError(
        "pybroker does not downgrade: restore a backup, or drop the schemas broker and broker_private"
    )
