"""Ids that nobody else has, and one that is found again."""

from __future__ import annotations

import hashlib
import os
import random
import time

# Our own source: a program that seeds Python's shared one would get the same ids in every process.
_random = random.Random()  # noqa: S311  (unique, not secret)
_unforeseen = random.SystemRandom()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def new_id() -> str:
    """An id for a thread or a run; unique, and no secret.

    Ids sort by the millisecond they were made in: what is new then stands together in a database's indexes, and
    many threads at once touch few of their pages.
    """
    return f"{time.time_ns() // 1_000_000:012x}{_random.getrandbits(80):020x}"


def fresh_write_id() -> int:
    """A number that no other write has, as far as chance goes."""
    return _random.getrandbits(63)


NONCE_DIGITS = 15
"""How many hexadecimal digits a nonce has."""


def fresh_nonce() -> int:
    """A number that nobody can foresee: a short id that is made of it cannot be made to equal another one."""
    return _unforeseen.getrandbits(4 * NONCE_DIGITS)


_COUNTED_BITS, _CHANCE_BITS = 10, 11
OLDEST_FIRST_FENCE = 2**40
"""Below this are the fences of threads that were made by versions which began at 1."""


_latest_birth = 0


def first_fence() -> int:
    """Where a new thread's fence begins: beyond what any earlier thread of that name can have come to.

    From there it grows by one a step. The upper bits are the time in milliseconds and some chance; the lower ones
    are left for counting. It fits 63 bits until the year 2109. Within a process each is larger than the one before.
    """
    global _latest_birth
    now = time.time_ns() // 1_000_000
    _latest_birth = max(now << _CHANCE_BITS | _random.getrandbits(_CHANCE_BITS), _latest_birth + 1)
    return _latest_birth << _COUNTED_BITS | 1


def birth_of(fence: int) -> int:
    """What tells a thread from an earlier one of its name; it changes, by one, every thousand steps or so."""
    return fence >> _COUNTED_BITS


def child_thread_id(parent_thread_id: str, tool_call_id: str) -> str:
    """The thread of the subagent that a call runs: the same whenever, and wherever, the call goes on."""
    return hashlib.sha256(f"{parent_thread_id}\0{tool_call_id}".encode()).hexdigest()[:32]


def case_id_of(thread_id: str, question_id: str, round: int) -> str:
    """The case id of a request: derived from its ids, so that every process gives it the same one."""
    named = f"{thread_id}\0{question_id}\0{round}".encode()
    return f"review_{hashlib.sha256(named).hexdigest()[:32]}"


def page_address(base_url: str, case_id: str) -> str:
    """Where the page of a case is on a service. Without a token it opens nothing."""
    return f"{base_url.rstrip('/')}/review/{case_id}"
