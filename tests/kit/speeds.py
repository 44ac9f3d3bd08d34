"""The speed of each test, as a marker by which `scripts/test fast` and `scripts/test stores` select tests.

- ``stores``: the test runs on PostgreSQL or MariaDB.
- ``fast``: the test runs in this process alone, on SQLite at most: it starts no process, server or browser, and is
  neither in ``proofs/`` nor in ``project/``.

Tests are not marked by hand. The parameters of a test show on which store it runs, and its folder shows whether it is
a proof or about the project. What it starts is found in the functions that the test, its fixtures and its parameters
call, in its own file and in the kit.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from kit.paths import TESTS

SERVERS = {"postgres", "postgresql", "mysql"}
ON_SERVERS = {
    "proofs/test_crowds_workers.py",
    "proofs/test_restarts.py",
    "proofs/test_restarts_checkpointer.py",
    "project/test_kit_servers.py",
    "workers/test_procrastinate_engine.py",
}
"""Files whose tests need a server, or start their own, independent of their parameters."""
STARTS = {
    *("Popen", "create_subprocess_exec", "subprocess", "fork", "race_track", "RaceTrack", "Nursery"),
    *("sync_playwright", "async_playwright", "pyright"),
    *("uvicorn", "start_server", "create_server", "HTTPServer", "ThreadingHTTPServer"),
}
"""Names whose use in a function means that it starts another process or a server."""


def mark(items: list[pytest.Item]) -> None:
    """Mark each test with its speed."""
    for item in items:
        if is_on_server(item):
            item.add_marker("stores")
        elif is_fast(item):
            item.add_marker("fast")


def is_on_server(item: pytest.Item) -> bool:
    """Whether a test needs a database server."""
    file = place(item)
    if file in ON_SERVERS:
        return True
    named = not file.startswith("project/") and any(value in SERVERS for value in _parameters(item))
    fixtures = getattr(item, "fixturenames", ())
    return named or ("fresh_databases" in fixtures and "database" not in fixtures)


def is_fast(item: pytest.Item) -> bool:
    """Whether a test starts nothing, and is neither a proof nor about the project."""
    if not isinstance(item, pytest.Function) or place(item).startswith(("proofs/", "project/")):
        return False
    fixtures = [
        made.func for name in item.fixturenames for made in item._fixtureinfo.name2fixturedefs.get(name, ())
    ]
    return not any(starts_something(function) for function in [item.obj, *fixtures, *_given(item)])


def _given(item: pytest.Function) -> Iterator[Any]:
    """The functions among a test's parameters and their fields."""
    given = getattr(item, "callspec", None)
    for value in given.params.values() if given else ():
        named = fields(value) if is_dataclass(value) and not isinstance(value, type) else ()
        for each in (value, *(getattr(value, field.name) for field in named)):
            yield from _functions(each)


def place(item: pytest.Item) -> str:
    """The path of a test's file, relative to the folder of tests."""
    return _below(item.path)


@cache
def _below(path: Path) -> str:
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else path.name


def _parameters(item: pytest.Item) -> list[str]:
    given = getattr(item, "callspec", None)
    return [value for value in given.params.values() if isinstance(value, str)] if given else []


@cache
def starts_something(function: Any) -> bool:
    """Whether a function, or one that it calls in its own file or in the kit, starts another process or a server."""
    seen: set[Any] = set()
    left = [inspect.unwrap(function)]
    while left:
        each = left.pop()
        if each in seen or not isinstance(each, FunctionType):
            continue
        seen.add(each)
        names = _names(each.__code__)
        if names & STARTS:
            return True
        for name in names & each.__globals__.keys():
            left += _functions(each.__globals__[name])
    return False


@cache
def _names(code: CodeType) -> frozenset[str]:
    """All names that a function's code uses, inner functions included."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset().union(code.co_names, code.co_varnames[: code.co_argcount], *inner)


def _functions(found: Any) -> Iterator[Any]:
    """The functions behind a name: itself, what it wraps, or a class's methods; only of tests and of the kit."""
    if isinstance(found, type):
        for kind in filter(_is_ours, found.__mro__):
            yield from (
                inspect.unwrap(each) for each in vars(kind).values() if isinstance(each, FunctionType)
            )
    elif callable(found) and _is_ours(found):
        yield inspect.unwrap(found)


def _is_ours(found: Any) -> bool:
    return str(getattr(found, "__module__", "")).startswith(("kit.", "tests."))
