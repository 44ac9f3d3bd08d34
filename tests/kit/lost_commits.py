"""Connections that are lost during a COMMIT, for the tests of what happens then."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from askfirst.store.mysql_engine import MySQLSession
from askfirst.store.postgres_engine import PostgresSession

SESSIONS: dict[str, Any] = {"postgres": PostgresSession, "mysql": MySQLSession}


def break_once(monkeypatch: pytest.MonkeyPatch, kind: str, *, committed: bool) -> None:
    """Make the next COMMIT lose its connection, after the server has committed, or before."""
    fates = iter([committed])
    for name, breaking in _breaking(kind, lambda: next(fates, None)):
        monkeypatch.setattr(SESSIONS[kind], name, breaking)


@contextmanager
def breaking_some(kind: str, dice: random.Random, *, risk: float) -> Generator[None]:
    """Make some COMMITs lose their connections; only on servers, because other kinds of stores have none."""
    with ExitStack() as stack:
        if kind in SESSIONS:
            for name, breaking in _breaking(
                kind, lambda: dice.choice([True, False]) if dice.random() < risk else None
            ):
                stack.enter_context(mock.patch.object(SESSIONS[kind], name, breaking))
        yield


def _breaking(kind: str, fate: Callable[[], bool | None]) -> Iterator[tuple[str, Any]]:
    """The methods that commit, patched. ``fate()`` is None, True (lose the connection after the commit) or False."""
    session = SESSIONS[kind]

    def breaking(commit: Any) -> Any:
        async def commit_and_break(self: Any, what: Any) -> Any:
            committed = fate()
            if committed is None:
                return await commit(self, what)
            if committed:
                await commit(self, what)
            self.drop()
            raise ConnectionResetError("the line went dead")

        return commit_and_break

    yield "commit", breaking(session.commit)
    if session.at_once is not None:
        yield "at_once", breaking(session.at_once)
