"""Durable threads for agents: one contract (`base`), and its implementation for each database."""
