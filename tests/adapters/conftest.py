"""Tests of one framework each run in an environment of that framework: see `scripts/test adapters`."""

collect_ignore = ["frameworks"]
