"""Durable threads for agents: one contract (`base`), and stores that keep it."""
