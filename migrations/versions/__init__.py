"""The revisions; Alembic finds them by this folder."""
