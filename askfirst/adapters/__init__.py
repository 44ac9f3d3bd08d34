"""Adapters: the gate before the tools of other frameworks. Each module loads its framework when it is imported."""
