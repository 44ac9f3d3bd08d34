"""A process that dies after so many commits, within the test's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from askfirst.checkpointer.sql import SqlCheckpointer


class Died(BaseException):
    """The process is gone."""


@contextmanager
def dying_after(store: SqlCheckpointer, commits: int) -> Generator[None]:
    """Whoever commits once more than that dies of it; what the store holds by then stays as it is."""
    commit, left = store.commit, commits

    async def commit_or_die(*args: Any, **options: Any) -> int:
        nonlocal left
        if left == 0:
            raise Died
        left -= 1
        return await commit(*args, **options)

    with mock.patch.object(store, "commit", commit_or_die):
        yield
