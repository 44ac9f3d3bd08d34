"""Benchmarks: each figure is a ratio within one run, held against a budget."""
