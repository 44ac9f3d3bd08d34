"""The simulated death of a process after a number of commits, within the test's process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from askfirst.checkpointer.sql import SqlCheckpointer


class Died(BaseException):
    """The simulated process has died."""


@contextmanager
def dying_after(store: SqlCheckpointer, commits: int) -> Generator[None]:
    """Raise `Died` at the commit after the first ``commits``; what was committed before stays stored."""
    commit, left = store.commit, commits

    async def commit_or_die(*args: Any, **options: Any) -> int:
        nonlocal left
        if left == 0:
            raise Died
        left -= 1
        return await commit(*args, **options)

    with mock.patch.object(store, "commit", commit_or_die):
        yield
