"""The conformance suite of checkpointers: it proves that all stores are alike, the one in memory included."""

from __future__ import annotations

from kit.stores import STORES, databases

database = databases(*STORES)
