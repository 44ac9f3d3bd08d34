"""What holds whatever happens holds on every store."""

from __future__ import annotations

from kit.stores import STORES, databases

database = databases(*STORES)
