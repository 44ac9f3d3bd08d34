"""An agent needs a store that lasts; that all of them are alike is proved in checkpointer/."""

from __future__ import annotations

from kit.stores import databases

database = databases("sqlite")
