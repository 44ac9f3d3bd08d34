"""Connections that are lost during a COMMIT, for the tests of what happens then."""

from __future__ import annotations

from typing import Any

import pytest

from assent.store.mysql_engine import MySQLSession
from assent.store.postgres_engine import PostgresSession

SESSIONS: dict[str, Any] = {"postgres": PostgresSession, "mysql": MySQLSession}


def break_once(monkeypatch: pytest.MonkeyPatch, kind: str, *, committed: bool) -> None:
    """The next COMMIT loses its connection, after or before the server has done it."""
    session, broken = SESSIONS[kind], []

    def breaking(commit: Any) -> Any:
        async def commit_and_break(self: Any, what: Any) -> Any:
            if broken:
                return await commit(self, what)
            broken.append(True)
            if committed:
                await commit(self, what)
            self.drop()
            raise ConnectionResetError("the line went dead")

        return commit_and_break

    monkeypatch.setattr(session, "commit", breaking(session.commit))
    if session.at_once is not None:
        monkeypatch.setattr(session, "at_once", breaking(session.at_once))
