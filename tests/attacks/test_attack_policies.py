"""Attacks on policies: arguments that a rule reads in one way and a tool in another (M12, L8)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from askfirst.permissions import ArgConstraint, PendingAction, StaticPermissionPolicy
from askfirst.permissions.operators import FORMS

Tried = Callable[[int], None]


def verdicts(test: str, operand: Any, value: Any) -> dict[str, str]:
    """What comes of a call under one rule of each effect, where what no rule matches is turned round."""
    found: dict[str, str] = {}
    for effect, default in (("allow", False), ("deny", True), ("require_approval", True)):
        constraint = ArgConstraint("x", test, operand)
        policy = StaticPermissionPolicy(
            [{"id": "r", "effect": effect, "scope": {"arg_constraints": [constraint]}}],
            {"allowed": default, "requires_approval": False},
        )
        found[effect] = policy.evaluate(PendingAction(tool="t", args={"x": value})).verdict
    return found


STRICT = {"allow": "deny", "deny": "deny", "require_approval": "ask"}
"""What a value comes to that no rule may say yes to, and that no rule may let pass."""

NO_FORM = [
    "secret",  # the tool opens it from its own working directory
    "./secret",
    "notes/../secret",
    "-rf",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "s3://bucket/key",
    "zip://secret::/etc/passwd",
    "%2e%2e%2fsecret",
    "..%2fsecret",
    "$HOME/.ssh/id_rsa",
    "${HOME}/.ssh/id_rsa",
    "~/.ssh/id_rsa",
    "~root/.ssh/id_rsa",
    "`echo /etc/passwd`",
    "{x,../../etc/passwd}",
    "*/secret",
]


@pytest.mark.attack("M12", "arguments that a policy and a tool read differently")
@pytest.mark.parametrize("start", [None, "folder"])
def test_within_says_yes_only_to_what_it_understands(
    tmp_path: Path, start: str | None, attacks_tried: Tried
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    operand: Any = str(data) if start is None else {"folder": str(data), "relative_to": str(data)}
    plain = {"secret", "./secret", "notes/../secret", "-rf"} if start else set[str]()
    values = [each for each in NO_FORM if each not in plain]
    values += [f"{data}/{each}" for each in NO_FORM if set(each) & set("%$~`{*") or "://" in each]
    values += ["/proc/self/cwd/secret", "//proc/self/cwd/secret", "/dev/fd/3", "/srv/../proc/1/root"]
    for value in values:
        assert verdicts("within", operand, value) == STRICT, value
    attacks_tried(3 * len(values))
    assert verdicts("within", operand, str(data / "secret"))["allow"] == "allow"
    for value in plain:
        assert verdicts("within", operand, value)["allow"] == "allow", value


@pytest.mark.attack("M12", "arguments that a policy and a tool read differently")
def test_a_relative_path_is_not_allowed_into_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding: ``allow read_file within DATA`` allowed ``secret``, and the tool read it from the CWD."""
    (tmp_path / "data").mkdir()
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd/secret").write_text("secret")
    monkeypatch.chdir(tmp_path / "cwd")
    constraint = ArgConstraint("file", "within", str(tmp_path / "data"))
    policy = StaticPermissionPolicy(
        [{"id": "r", "effect": "allow", "scope": {"tool": "read_file", "arg_constraints": [constraint]}}]
    )
    assert Path("secret").read_text() == "secret"
    assert policy.evaluate(PendingAction(tool="read_file", args={"file": "secret"})).verdict == "deny"


@pytest.mark.attack("L8", "other spellings of what a policy names")
def test_a_host_is_told_in_ascii_alone(attacks_tried: Tried) -> None:
    urls = [
        "http\u017f://example.com/",  # a long s is an "s" where upper and lower case are one
        "HTTP\u017f://example.com/",
        "w\u017fs://example.com/",
        "https://\u212aey.example.com/",  # Kelvin sign
        "https://e\u017fxample.com/",
        "https://[::\uff11]/",
        "https://ex\u0430mple.com/",
        "https://example\u3002com/",
    ]
    for url in urls:
        for operand in ("example.com", "key.example.com", "esxample.com", "*.example.com", "*", "::1"):
            assert verdicts("host_in", operand, url) == STRICT, url
    attacks_tried(6 * len(urls))
    assert verdicts("host_in", "key.example.com", "HTTPS://KEY.example.com/")["allow"] == "allow"


NAMES = ["caf\u00e9", "Zo\u00eb", "\uac00\ub098", "\u1e69", "\u212aelvin", "\ufb01le", "\uff52\uff4d"]


@pytest.mark.attack("L8", "other spellings of what a policy names")
@pytest.mark.parametrize("test", ["equals", "in", "glob", "regex"])
def test_another_normal_form_gets_around_no_rule_and_into_none(test: str, attacks_tried: Tried) -> None:
    tried = 0
    for name in NAMES:
        operands = dict.fromkeys(unicodedata.normalize(form, name) for form in FORMS)
        for named in operands:
            operand = [named, "other"] if test == "in" else named
            assert verdicts(test, operand, named)["allow"] == "allow"
            for value in operands:
                if value != named:
                    assert verdicts(test, operand, value) == STRICT, (named, value)
                    tried += 3
            told = verdicts(test, operand, f"{named}x")
            assert told == {"allow": "deny", "deny": "allow", "require_approval": "allow"}
    attacks_tried(tried)


@pytest.mark.attack("L8", "other spellings of what a policy names")
@pytest.mark.parametrize("test", ["not_equals", "not_in"])
def test_nor_a_rule_that_says_what_it_must_not_be(test: str) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    for named, value in ((composed, apart), (apart, composed)):
        operand = [named] if test == "not_in" else named
        assert verdicts(test, operand, value) == STRICT
        assert verdicts(test, operand, "tea")["allow"] == "allow"


@pytest.mark.attack("L8", "other spellings of what a policy names")
def test_nor_one_inside_an_object() -> None:
    """Keys are put in order after they are spelt alike: a composed one stands elsewhere than its parts."""
    named = {"caf\u00e9": ["\u00e9"], "cafz": 1}
    value = {"cafe\u0301": ["e\u0301"], "cafz": 1}
    assert verdicts("equals", named, value) == STRICT
    assert verdicts("equals", named, {**value, "cafz": 2})["deny"] == "allow"


@pytest.mark.attack("L8", "other spellings of what a policy names")
def test_what_a_pattern_leaves_out_stays_out_in_parts() -> None:
    assert verdicts("regex", "[^\u00e9]*", "cafe\u0301") == STRICT
    assert verdicts("regex", "[^\u00e9]*", "cafe")["allow"] == "allow"
    assert verdicts("regex", "[a-z\u00e9]+", "caf\u00e9")["allow"] == "allow"


@pytest.mark.attack("L8", "other spellings of what a policy names")
@pytest.mark.parametrize("test", ["equals", "in", "glob", "regex"])
def test_marks_without_end_take_no_time_and_are_let_pass_by_nobody(test: str) -> None:
    """Putting 100,000 marks in order takes Python ten seconds; so they are counted first."""
    operand = ["caf\u00e9" * 9000] if test == "in" else "caf\u00e9" * (9000 if test == "equals" else 1)
    assert verdicts(test, operand, "e" + "\u0315\u0300" * 40_000) == STRICT
