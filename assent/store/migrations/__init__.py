"""The schema's history, for Alembic. `assent.store.schema` runs it when a store is opened."""
