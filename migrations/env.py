"""Alembic's entry, for the script that ``pybroker migrate --sql`` prints.

A migration over a connection needs none: see ``pybroker.migrations.upgrade``.
"""

from alembic import context

from pybroker.migrations import VERSION_TABLE, VERSION_TABLE_SCHEMA

context.configure(
    dialect_name="postgresql",
    version_table=VERSION_TABLE,
    version_table_schema=VERSION_TABLE_SCHEMA,
)

with context.begin_transaction():
    context.run_migrations()
