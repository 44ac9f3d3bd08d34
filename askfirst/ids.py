"""Ids: unique ids for threads, runs and writes, and ids derived from others, such as that of a subagent's thread."""

from __future__ import annotations

import hashlib
import os
import random
import time

# Our own random source: a program that seeds Python's shared one would get the same ids in every process.
_random = random.Random()  # noqa: S311  (unique, not secret)
_unpredictable = random.SystemRandom()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def new_id() -> str:
    """An id for a thread or a run; unique, but not secret.

    Ids sort by the millisecond of their creation. So new rows are close together in a database's indexes, and many
    threads at once touch few index pages.
    """
    return f"{time.time_ns() // 1_000_000:012x}{_random.getrandbits(80):020x}"


def fresh_write_id() -> int:
    """A random number that identifies a write; a collision is practically impossible."""
    return _random.getrandbits(63)


NONCE_DIGITS = 15
"""The number of hexadecimal digits of a nonce."""


def fresh_nonce() -> int:
    """An unpredictable number (a nonce). A short id that is made with it cannot be forced to equal another id."""
    return _unpredictable.getrandbits(4 * NONCE_DIGITS)


_COUNTED_BITS, _CHANCE_BITS = 10, 11
OLDEST_FIRST_FENCE = 2**40
"""Fences below this belong to threads that were created by old versions, which counted from 1."""


_latest_birth = 0


def first_fence() -> int:
    """The first fence of a new thread, larger than any fence of an earlier, deleted thread with the same id.

    The upper bits are the time in milliseconds and random bits. The lower bits are 1, and each step adds 1. A fence
    has at most 63 bits until the year 2109. Within a process, each first fence is larger than the one before.
    """
    global _latest_birth
    now = time.time_ns() // 1_000_000
    _latest_birth = max(now << _CHANCE_BITS | _random.getrandbits(_CHANCE_BITS), _latest_birth + 1)
    return _latest_birth << _COUNTED_BITS | 1


def birth_of(fence: int) -> int:
    """The upper bits of a fence. They tell a thread from an earlier, deleted thread with the same id, and grow by one
    about every thousand steps."""
    return fence >> _COUNTED_BITS


def child_thread_id(parent_thread_id: str, tool_call_id: str) -> str:
    """The thread id of the subagent that a call runs, derived from the call, so that every process computes the
    same."""
    return hashlib.sha256(f"{parent_thread_id}\0{tool_call_id}".encode()).hexdigest()[:32]


def case_id_of(thread_id: str, question_id: str, round: int) -> str:
    """The case id of a request: derived from its ids, so that every process gives it the same one."""
    named = f"{thread_id}\0{question_id}\0{round}".encode()
    return f"review_{hashlib.sha256(named).hexdigest()[:32]}"


BASE_URL_VARIABLE = "ASKFIRST_BASE_URL"
"""The environment variable with the service's URL, as people reach it."""


def page_address(base_url: str, case_id: str) -> str:
    """The URL of a case's page on a service, without the token that opens it."""
    return f"{base_url.rstrip('/')}/review/{case_id}"
