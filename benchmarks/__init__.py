"""Benchmarks: each figure is a ratio within one run, compared with a budget."""
