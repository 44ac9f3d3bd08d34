"""Ids: unique, in the order they were made in, and their own whatever a program does to Python's random numbers."""

from __future__ import annotations

import random
import time

from askfirst.ids import child_thread_id, new_id


def test_ids_are_unique_and_of_one_length() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {32}
    assert all(set(each) <= set("0123456789abcdef") for each in ids)


def test_ids_sort_by_the_time_they_were_made() -> None:
    earlier = new_id()
    made = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == made:
        pass
    assert earlier < new_id()


def test_their_ends_are_unique_within_a_moment() -> None:
    """Holders of leases and claims are told apart by an id's last half."""
    ends = [new_id()[-16:] for _ in range(10_000)]
    assert len(set(ends)) == len(ends)


def test_a_seeded_program_gets_no_ids_again() -> None:
    ids: set[str] = set()
    for _ in range(2):
        random.seed(7)
        ids.add(new_id()[-16:])
    assert len(ids) == 2


def test_a_subagents_thread_is_found_again() -> None:
    assert child_thread_id("t", "c1") == child_thread_id("t", "c1")
    assert (
        len({child_thread_id(*pair) for pair in [("t", "c1"), ("t", "c2"), ("tc", "1"), ("t\0c", "1")]}) == 4
    )
