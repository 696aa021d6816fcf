"""An operation for an application's own Alembic revisions: `op.apply_broker_definitions(definitions)`.

Import this module in `env.py` or in the revision; it registers the operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from alembic.operations import MigrateOperation, Operations

from pybroker.definitions.applying import applying

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.definitions import Definition, Grant, Plan


@Operations.register_operation("apply_broker_definitions")
class ApplyBrokerDefinitions(MigrateOperation):
    """Make the database have what is defined, in the transaction of the migration."""

    def __init__(self, definitions: Sequence[Definition | Grant], *, prune: bool = False) -> None:
        self.definitions = definitions
        self.prune = prune

    @classmethod
    def apply_broker_definitions(
        cls, operations: Operations, definitions: Sequence[Definition | Grant], *, prune: bool = False
    ) -> Plan:
        """Apply definitions: `broker.apply`, in the migration's transaction.

        Args:
            operations: Alembic's, given by itself.
            definitions: what the database should have.
            prune: whether to drop what is not defined.

        Returns:
            What was done.

        Raises:
            DefinitionError: as ``broker.apply``.
            TypeError: the migration runs on another driver than psycopg 3, or prints SQL (``--sql``).
        """
        made: Plan = operations.invoke(cls(definitions, prune=prune))
        return made


@Operations.implementation_for(ApplyBrokerDefinitions)
def _run(operations: Operations, operation: ApplyBrokerDefinitions) -> Plan:
    bind = operations.get_bind()
    driver = bind.connection.driver_connection if bind is not None else None
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(
            "apply_broker_definitions reads the database over the psycopg 3 driver:"
            " use a postgresql+psycopg:// URL, and no --sql"
        )
    statements = applying(operation.definitions, prune=operation.prune, is_dry_run=False)
    try:
        statement = next(statements)
        while True:
            statement = statements.send(driver.execute(*statement).fetchall())
    except StopIteration as end:
        made: Plan = end.value
        return made
