"""Every table there is: the threads', and the service's."""

from __future__ import annotations

from assent.store import budget_tables, case_tables, service_tables, tables

MODULES = (tables, case_tables, service_tables, budget_tables)
metadata = tables.metadata
