"""Alembic's entry: runs the revisions over the connection that :func:`pybroker.migrations.upgrade` holds."""

from alembic import context

from pybroker.migrations import VERSION_TABLE, VERSION_TABLE_SCHEMA

if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql",
        version_table=VERSION_TABLE,
        version_table_schema=VERSION_TABLE_SCHEMA,
    )
else:
    context.configure(
        connection=context.config.attributes["connection"],
        version_table=VERSION_TABLE,
        version_table_schema=VERSION_TABLE_SCHEMA,
    )

with context.begin_transaction():
    context.run_migrations()
