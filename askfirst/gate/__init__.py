"""The gate: one decision and one effect for any function."""
