"""The database servers of a test run: found by environment or on loopback, else started and removed afterwards.

- `find_or_start_postgres()` returns a Server, or Missing with the reason; so does `find_or_start_mysql()`.
- `start_own(ThrowawayPostgres)` starts a server for one test, to stop, kill and start; see throwaway_servers.py.
- conftest.py calls `begin()` at the start of the run and `summarize()` at its end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

from kit.debian_packages import in_ci, install
from kit.throwaway_servers import (
    QUICK,
    ServerError,
    Throwaway,
    ThrowawayMySQL,
    ThrowawayPostgres,
    mysql_login,
    run_coroutine,
    shorten,
)

__all__ = [
    "Missing",
    "Server",
    "ServerError",
    "ThrowawayMySQL",
    "ThrowawayPostgres",
    "begin",
    "find_or_start_mysql",
    "find_or_start_postgres",
    "mysql_login",
    "start_own",
    "summarize",
]

T = TypeVar("T", bound=Throwaway)

FOUND = pytest.StashKey[list["Server | Missing"]]()


@dataclass(frozen=True)
class Server:
    """A server that answers at `dsn`."""

    product: str
    version: str
    dsn: str
    origin: str
    throwaway: Throwaway | None = None

    def __str__(self) -> str:
        address = urlsplit(self.dsn)
        return f"{self.product} {self.version} at {address.hostname}:{address.port} ({self.origin})"

    def close(self) -> None:
        """Stop and remove the server if it was started for this run."""
        if self.throwaway:
            self.throwaway.close()


@dataclass(frozen=True)
class Missing:
    """No server, and why. `asked_for` means that the environment names a server that cannot be reached."""

    product: str
    reason: str
    asked_for: bool = False

    def __str__(self) -> str:
        return f"{self.product}: {self.reason}"


def begin(session: pytest.Session) -> None:
    """Find or start this run's servers; those that were started are removed at its end.

    The run fails if a server that the environment names cannot be reached, and with CI=true if either is missing. A
    run of the fast tests needs none.
    """
    if session.config.option.collectonly or session.config.option.markexpr == "fast":
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    found = find_or_start_all(reporter.write_line if reporter else lambda _: None)
    session.config.stash[FOUND] = found
    for server in found:
        if isinstance(server, Server):
            session.config.add_cleanup(server.close)
    if failures := [str(one) for one in found if isinstance(one, Missing) and (one.asked_for or in_ci())]:
        raise pytest.UsageError("\n".join(failures))


def summarize(reporter: pytest.TerminalReporter) -> None:
    """Print which servers were used, and which tests were skipped, with the reason."""
    found = reporter.config.stash.get(FOUND, [])
    missing = [one for one in found if isinstance(one, Missing)]
    if used := [str(one) for one in found if isinstance(one, Server)]:
        reporter.write_sep("=", "Servers")
        reporter.write_line(f"Servers used: {', '.join(used)}")
    skipped = Counter(_where_and_why(report) for report in reporter.stats.get("skipped", []))
    if missing or skipped:
        reporter.write_sep("=", "Skipped")
    for one in missing:
        reporter.write_line(f"All tests on a real server of {one}")
    for (where, why), count in sorted(skipped.items()):
        reporter.write_line(f"{where}: {count} skipped: {why}")


def find_or_start_postgres(say: Callable[[str], None] = lambda _: None) -> Server | Missing:
    """PostgreSQL at $ASKFIRST_TEST_POSTGRES, on loopback, from installed binaries or from Debian's package."""
    return _find_or_start(ThrowawayPostgres, say)


def find_or_start_mysql(say: Callable[[str], None] = lambda _: None) -> Server | Missing:
    """MariaDB or MySQL, found like `find_or_start_postgres` with $ASKFIRST_TEST_MYSQL."""
    return _find_or_start(ThrowawayMySQL, say)


def start_own(kind: type[T], *, durable: bool = False) -> T:
    """A temporary server for one test. If it cannot be started, the test is skipped, or fails if CI=true."""
    try:
        if kind.binary() is None and (refusal := install(kind.package, kind.binary, lambda _: None)):
            raise ServerError(refusal)
        return kind(durable=durable)
    except (ServerError, OSError) as error:
        give_up = pytest.fail if in_ci() else pytest.skip
        raise give_up.Exception(f"no {kind.product} of our own: {_describe(error)}") from error


def find_or_start_all(say: Callable[[str], None]) -> list[Server | Missing]:
    """Find or start both servers at once; their addresses go into the environment, for tests and subprocesses."""
    kinds: tuple[type[Throwaway], ...] = (ThrowawayPostgres, ThrowawayMySQL)
    with ThreadPoolExecutor(len(kinds)) as pool:
        results = list(pool.map(lambda kind: _find_or_start(kind, say), kinds))
    for kind, result in zip(kinds, results, strict=True):
        if isinstance(result, Server):
            os.environ[kind.variable] = result.dsn
    return results


def _find_or_start(kind: type[Throwaway], say: Callable[[str], None]) -> Server | Missing:
    if dsn := os.environ.get(kind.variable):
        try:
            return _reach(kind, dsn, f"from {kind.variable}")
        except Exception as error:
            reason = f"{kind.variable} is set, but its server does not let us in: {_describe(error)}"
            return Missing(kind.product, reason, asked_for=True)
    try:
        return _reach(kind, kind.default_dsn, "already there")
    except Exception as error:
        on_loopback = _describe(error)
    not_there = f"none lets us in at {kind.default_dsn} ({on_loopback})"
    if kind.binary() is None and (refusal := install(kind.package, kind.binary, say)):
        return Missing(kind.product, f"{not_there}, no {kind.program} binary is installed, and {refusal}")
    try:
        throwaway = kind()
    except (ServerError, OSError) as error:
        return Missing(kind.product, f"{not_there}, and none could be started: {_describe(error)}")
    return _reach(kind, throwaway.dsn, "throwaway", throwaway)


def _reach(kind: type[Throwaway], dsn: str, origin: str, throwaway: Throwaway | None = None) -> Server:
    return Server(*run_coroutine(kind.ask_version(dsn, QUICK)), dsn, origin, throwaway)


def _where_and_why(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str]:
    """The file that a skip is in, and its reason."""
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return report.nodeid.partition("::")[0], why.removeprefix("Skipped: ")


def _describe(error: Exception) -> str:
    return shorten(str(error)) or type(error).__name__
