"""Tokens: long enough, kept as hashes, each good for its own scope only."""

from __future__ import annotations

import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.protocol import TokenScope, case, hash_token, issue_token, token_matches

SCOPES: list[TokenScope] = ["review", "submit"]


def test_tokens_have_256_bits_and_are_safe_in_addresses() -> None:
    review, submit = issue_token("review"), issue_token("submit")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", review)
    assert re.fullmatch(r"agt_[A-Za-z0-9_-]{43}", submit)
    assert len({issue_token(scope) for scope in SCOPES for _ in range(100)}) == 200


def test_the_randomness_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(case.secrets, "token_urlsafe", lambda size: asked.append(size) or "r" * 43)
    assert issue_token("submit") == "agt_" + "r" * 43
    assert asked == [32]


def test_the_hash_is_plain_sha_256() -> None:
    assert hash_token("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_matches_its_own_hash_only(scope: TokenScope) -> None:
    token = issue_token(scope)
    assert token_matches(token, scope, hash_token(token))
    assert not token_matches(token, scope, hash_token(issue_token(scope)))
    assert not token_matches(token[:-1] + ("a" if token[-1] != "a" else "b"), scope, hash_token(token))
    assert not token_matches(token + "a", scope, hash_token(token))
    assert not token_matches(token, scope, None)


@pytest.mark.parametrize(("scope", "other"), [("review", "submit"), ("submit", "review")])
def test_a_token_is_never_good_for_the_other_scope(scope: TokenScope, other: TokenScope) -> None:
    token = issue_token(scope)
    assert not token_matches(token, other, hash_token(token))


def test_a_review_token_that_looks_like_the_other_kind_is_still_a_review_token() -> None:
    token = "agt_" + "a" * 39
    assert token_matches(token, "review", hash_token(token))
    assert not token_matches(token, "submit", hash_token(token))


@given(st.text() | st.text(st.characters(), max_size=5), st.sampled_from(SCOPES))
def test_any_text_can_be_asked_about(text: str, scope: TokenScope) -> None:
    assert not token_matches(text, scope, hash_token(issue_token(scope)))
    assert not token_matches(text, scope, None)
    assert not token_matches(text, scope, "")


def test_nothing_matches_for_an_unknown_case() -> None:
    assert not token_matches("", "review", None)
    assert not token_matches("", "review", hashlib.sha256(b"").hexdigest())


@pytest.mark.parametrize("stored", [None, hash_token("x")])
def test_every_comparison_takes_constant_time(stored: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    token_matches("short", "review", stored)
    token_matches(issue_token("submit"), "review", stored)
    assert len(compared) == 2
    assert all(len(one) == len(other) == 64 for one, other in compared)
