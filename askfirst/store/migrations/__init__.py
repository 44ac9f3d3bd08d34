"""The schema's history, for Alembic. `askfirst.store.schema` runs it when a store is opened."""
