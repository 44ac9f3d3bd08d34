"""The proofs run on every store."""

from __future__ import annotations

from kit.stores import STORES, databases

database = databases(*STORES)
