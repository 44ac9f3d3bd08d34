"""Argument constraints: paths, tests, and what cannot be told."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import InvalidPolicy
from askfirst.permissions import ArgConstraint
from askfirst.permissions.constraints import TESTS, all_hold
from askfirst.permissions.operators import LONGEST_REGEX_VALUE, host_of


def holds(test: str, operand: Any, value: Any) -> bool | None:
    return ArgConstraint("x", test, operand).holds({"x": value})


@pytest.mark.parametrize(
    ("test", "operand", "value", "expected"),
    [
        ("equals", 1, 1, True),
        ("equals", 1, 1.0, True),
        ("equals", 1, True, None),
        ("equals", True, 1, None),
        ("equals", "1", 1, None),
        ("equals", "a", "b", False),
        ("equals", None, None, True),
        ("equals", None, "a", False),
        ("equals", "a", None, None),
        ("equals", [1, {"a": 2}], [1.0, {"a": 2}], True),
        ("equals", [1], [True], False),
        ("equals", 1, float("nan"), None),
        ("equals", 2**70, 2**70, True),
        ("equals", 2**70, 2**70 + 1, False),
        ("not_equals", "prod", "test", True),
        ("not_equals", "prod", "prod", False),
        ("not_equals", "prod", ["prod"], None),
        ("not_equals", "prod", None, None),
        ("not_equals", None, "a", True),
        ("in", ["a", "b"], "b", True),
        ("in", ["a", "b"], "c", False),
        ("in", ["a", "b"], 1, None),
        ("in", ["a", 1], True, None),
        ("not_in", ["a", "b"], "c", True),
        ("not_in", ["a", "b"], "a", False),
        ("not_in", ["a", "b"], ["a"], None),
        ("glob", "*.txt", "a.txt", True),
        ("glob", "*.txt", "a.txt\n", False),
        ("glob", "*.txt", "A.TXT", False),
        ("glob", "a", "ab", False),
        ("glob", "*", 1, None),
        ("regex", "[a-z]+", "abc", True),
        ("regex", "[a-z]+", "abc1", False),
        ("regex", "[a-z]+", "abc\n", False),
        ("regex", "a|ab", "ab", True),
        ("regex", "(?i)abc", "ABC", True),
        ("regex", "(?m)^a$", "b\na", False),
        ("regex", ".*", 1, None),
        ("regex", ".*", "\ud800", None),
        ("regex", "a*", "a" * (LONGEST_REGEX_VALUE + 1), None),
        ("lt", 5, 4, True),
        ("lt", 5, 5, False),
        ("lte", 5, 5.0, True),
        ("gt", 5, 6, True),
        ("gte", 5, 4.9, False),
        ("lt", 5, "4", None),
        ("lt", 5, True, None),
        ("gt", 5, float("inf"), None),
        ("lt", 5, float("nan"), None),
        ("lt", 5, None, None),
    ],
)
def test_what_a_test_says(test: str, operand: Any, value: Any, expected: bool | None) -> None:
    assert holds(test, operand, value) is expected


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*a){20}b", "(?:a?){50}a{50}b"])
def test_catastrophic_patterns_end(pattern: str) -> None:
    assert holds("regex", pattern, "a" * 5000) is False


@pytest.mark.parametrize(
    ("test", "operand", "said"),
    [
        ("regex", "a(", "regex is no regular expression that can be used: unclosed group"),
        ("regex", "a)|(?:b", "regex is no regular expression that can be used: unopened group"),
        ("regex", "(?=a)", "look-around"),
        ("regex", r"(a)\1", "backreferences"),
        ("regex", "(a{1000}){1000}", "size limit"),
        ("regex", 1, "regex needs text, not a number"),
        ("glob", "", "glob needs text, not an empty one"),
        ("in", "abc", "in needs a list with something in it"),
        ("in", [], "in needs a list with something in it"),
        ("not_in", [float("nan")], "not_in needs a value that JSON can hold"),
        ("equals", {1}, "equals needs a value that JSON can hold"),
        ("lt", "5", "lt needs a number, not text"),
        ("lt", True, "lt needs a number, not true or false"),
        ("gte", float("nan"), "gte needs a number"),
        ("within", "relative/folder", "within needs the absolute path of a folder"),
        ("within", 5, "within needs the absolute path of a folder"),
        ("within", {"relative_to": "/x"}, "within needs the absolute path of a folder as its folder"),
        ("within", {"folder": "x"}, "within needs the absolute path of a folder as its folder"),
        ("within", {"folder": "/x", "relative_to": "."}, "the absolute path of a folder as relative_to"),
        ("within", {"folder": "/x", "relative": True}, "has no 'relative'; it has folder and relative_to"),
        ("equals", "e" + "\u0301" * 40, "too many marks in a row"),
        ("glob", "*e" + "\u0301" * 40, "too many marks in a row"),
        ("host_in", [], "host_in needs a host or a list of hosts"),
        ("host_in", [5], "host_in needs hosts that are text"),
        ("host_in", "https://example.com", "without scheme and port"),
        ("host_in", "example.com:80", "without scheme and port"),
        ("host_in", "münchen.de", "write it in ASCII"),
        ("host_in", "a b", "which is none"),
        ("host_in", "0x7f.1", "which is none"),
        ("like", 5, "'like' is not a test; there are equals"),
    ],
)
def test_an_operand_that_makes_no_sense_is_refused(test: str, operand: Any, said: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        ArgConstraint("x", test, operand)
    assert said in str(caught.value)


@pytest.mark.parametrize("path", ["", "a..b", ".a", 5, None])
def test_a_path_that_makes_no_sense_is_refused(path: Any) -> None:
    with pytest.raises(InvalidPolicy, match="path"):
        ArgConstraint(path, "equals", 1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", None),  # an object is of another type than 1
        ("a.b", True),
        ("a.c", None),
        ("a.b.c", None),
        ("list.0", True),
        ("list.1", False),
        ("list.2", None),
        ("list.-1", None),
        ("list.*", None),  # some fit and some do not
        ("ones.*", True),
        ("twos.*", False),
        ("none.*", None),
        ("objects.*.n", True),
        ("ragged.*.n", None),
        ("a.*", None),
        ("0", True),
    ],
)
def test_paths(path: str, expected: bool | None) -> None:
    args = {
        "a": {"b": 1},
        "list": [1, 2],
        "ones": [1, 1],
        "twos": [2, 2],
        "none": [],
        "objects": [{"n": 1}, {"n": 1}],
        "ragged": [{"n": 1}, {}],
        "0": 1,
    }
    assert ArgConstraint(path, "equals", 1).holds(args) is expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
OPERANDS: dict[str, Any] = {
    "equals": "a",
    "not_equals": "a",
    "in": ["a", 1],
    "not_in": ["a", 1],
    "glob": "a*",
    "regex": "a+",
    "lt": 5,
    "lte": 5,
    "gt": 5,
    "gte": 5,
    "within": "/srv/data",
    "leads_to": {"regex": ".*/secret", "relative_to": "/srv/data"},
    "host_in": ["example.com"],
}


def test_every_test_is_tried() -> None:
    assert set(OPERANDS) == set(TESTS)


@given(st.sampled_from(sorted(OPERANDS)), JSON)
def test_no_value_makes_a_test_raise(test: str, value: Any) -> None:
    assert holds(test, OPERANDS[test], value) in (True, False, None)


@given(st.sampled_from(sorted(OPERANDS)), JSON)
def test_what_is_absent_is_never_told(test: str, value: Any) -> None:
    assert ArgConstraint("absent", test, OPERANDS[test]).holds({"x": value}) is None


@given(st.lists(st.sampled_from([True, False, None]), max_size=4))
def test_all_hold_is_kleene_and(told: list[bool | None]) -> None:
    constraints = [
        ArgConstraint("yes" if each else "no" if each is False else "absent", "equals", 1) for each in told
    ]
    expected = False if False in told else None if None in told else True
    assert all_hold(constraints, {"yes": 1, "no": 2}) is expected


# within


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """A folder ``root/in`` with links that stay inside and links that lead out."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("in", "in/deep", "in/deep/er", "out", "out/deep", "in-side"):
            (root / name).mkdir()
        (root / "out/secret").write_text("secret")
        (root / "in/plain").write_text("plain")
        for link, target in {
            "in/up": "..",
            "in/out": "../out",
            "in/abs": str(root / "out"),
            "in/self": ".",
            "in/loop": "loop",
            "in/dangling": "../out/new",
            "in/deep/down": "er",
            "in/outdeep": "../out/deep",
            "out/back": "../in",
        }.items():
            (root / link).symlink_to(target)
        yield root


def from_there(folder: Path) -> dict[str, str]:
    """The operand of ``within`` for a folder from which relative paths start."""
    return {"folder": str(folder), "relative_to": str(folder)}


STEPS = ["in", "out", "deep", "er", "up", "abs", "self", "loop", "dangling", "down", "back", "outdeep"]
STEPS += ["secret", "plain", "new", "..", "..", ".", "", "in-side"]


@given(st.lists(st.sampled_from(STEPS), max_size=7), st.booleans())
def test_nothing_within_escapes(tree: Path, steps: list[str], absolute: bool) -> None:
    """Whatever is said to be within: neither opening it nor opening it tidied up leads out."""
    value = "/".join(steps)
    if absolute:
        value = f"{tree}/{value}"
    if holds("within", from_there(tree / "in"), value) is not True:
        assert value.startswith("/") or holds("within", str(tree / "in"), value) is None
        return
    inside = os.path.realpath(tree / "in")
    joined = value if absolute else f"{inside}/{value}"
    for reading in (joined, os.path.normpath(joined)):
        try:
            real = os.path.realpath(reading, strict=True)
        except OSError:  # not there, or a link that leads nowhere: where would it be made?
            real = os.path.realpath(reading)
        assert real == inside or real.startswith(inside + os.sep), value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", True),
        (".", True),
        ("not/there/yet", True),
        ("deep/../plain", True),
        ("deep/down/../x", True),
        ("self/self/plain", True),
        ("../in/plain", True),
        ("..", False),
        ("../in-side/x", False),
        ("../out/secret", False),
        ("out/secret", False),
        ("abs/secret", False),
        ("up/out/secret", False),
        ("dangling", False),
        ("missing/../../out/secret", False),
        ("outdeep/../plain", None),  # out/plain for the system, in/plain for who tidies up first
        ("/etc/passwd", False),
        ("//etc/passwd", False),
        ("", None),
        ("~/x", None),
        ("~root", None),
        ("a\0b", None),
        ("..\\out\\secret", None),
        ("\ud800", None),
        (5, None),
        (["plain"], None),
    ],
)
def test_within(tree: Path, value: Any, expected: bool | None) -> None:
    assert holds("within", from_there(tree / "in"), value) is expected
    if isinstance(value, str) and not value.startswith("/"):
        assert holds("within", str(tree / "in"), value) is None, "nobody knows where it starts"
        absolute = f"{tree}/in/{value}"
        assert holds("within", str(tree / "in"), absolute) is (True if value == "" else expected)


def test_relative_paths_may_start_elsewhere(tree: Path) -> None:
    operand = {"folder": str(tree / "in"), "relative_to": str(tree)}
    assert holds("within", operand, "in/plain") is True
    assert holds("within", operand, "plain") is False
    assert holds("within", {"folder": str(tree / "in")}, "in/plain") is None
    assert holds("within", {"folder": str(tree / "in")}, str(tree / "in/plain")) is True


def test_within_a_folder_that_is_a_link(tree: Path) -> None:
    assert holds("within", from_there(tree / "in/outdeep"), "x") is True
    assert holds("within", str(tree / "in/outdeep"), str(tree / "out/deep/x")) is True
    assert holds("within", str(tree / "in/outdeep"), str(tree / "in/x")) is False


def test_within_a_very_long_path(tree: Path) -> None:
    assert holds("within", from_there(tree / "in"), "x" * 100_000) is None
    assert holds("within", from_there(tree / "in"), "x/" * 5_000 + "../" * 6_000) is None
    assert holds("within", from_there(tree / "in"), "x/" * 500 + "../" * 600) is False


# host_in


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com", True),
        ("https://example.com/a?b#c", True),
        ("HTTPS://EXAMPLE.com:8443/", True),
        ("wss://example.com.", True),
        ("https://api.example.org", True),
        ("https://a.b.example.org/", True),
        ("https://example.org", False),
        ("https://xexample.org", False),
        ("https://example.com.evil.net", False),
        ("https://evil.net/example.com", False),
        ("https://evil.net?@example.com", False),
        ("https://evil.net#@example.com", False),
        ("http://[::1]/", True),
        ("http://[0:0:0:0:0:0:0:1]:80/", True),
        ("http://[::2]/", False),
        ("http://127.0.0.1/", True),
        ("http://127.0.0.2/", False),
        ("https://example.com@evil.net", None),
        ("https://user:pass@example.com", None),
        ("https://example.com:80@evil.net", None),
        ("https://example.com\\@evil.net", None),
        ("https:\\\\example.com", None),
        ("https:/example.com", None),
        ("https:///example.com", None),
        ("https:example.com", None),
        ("//example.com", None),
        ("example.com", None),
        ("ftp://example.com", None),
        ("javascript://example.com/%0aalert(1)", None),
        (" https://example.com", None),
        ("https://exam\tple.com", None),
        ("https://example.com\n", None),
        ("https://example.com/a b", None),
        ("https://ex%61mple.com", None),
        ("https://exämple.com", None),
        ("https://example。com", None),
        ("https://example.com..", None),
        ("https://.example.com", None),
        ("https://example..com", None),
        ("https://-example.com", None),
        ("https://example.com:", None),
        ("https://example.com:port", None),
        ("http://2130706433/", None),
        ("http://0x7f000001/", None),
        ("http://127.1/", None),
        ("http://0177.0.0.1/", None),
        ("http://127.0.0.1./", True),
        ("http://[::ffff:127.0.0.1]/", None),
        ("http://[::1%25eth0]/", None),
        ("http://[::1", None),
        ("", None),
        (5, None),
    ],
)
def test_host_in(url: Any, expected: bool | None) -> None:
    assert holds("host_in", ["example.com", "*.example.org", "[::1]", "127.0.0.1"], url) is expected


def test_one_host_needs_no_list() -> None:
    assert holds("host_in", "EXAMPLE.com.", "https://example.com/") is True


@given(st.text(max_size=30), st.text(max_size=10))
def test_the_host_of_a_url_is_what_follows_the_slashes(before: str, after: str) -> None:
    """Whatever else a URL carries, a host is only told where it stands alone between slashes."""
    url = f"https://{before}example.com{after}"
    host = host_of(url)
    if host == "example.com":
        assert before == ""
        assert after[:1] in ("", "/", "?", "#", ":", ".")


# leads_to


def test_a_path_leads_to_a_file_by_its_name_or_through_links(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    (tmp_path / "plain").symlink_to("secret")
    (tmp_path / "again").symlink_to("plain")
    (tmp_path / "loop").symlink_to("loop")
    operand = {"regex": "(.*/)?secret", "relative_to": str(tmp_path)}
    for path in ("secret", "plain", "again", "a/../again", str(tmp_path / "plain"), "~/secret", "$X/secret"):
        assert holds("leads_to", operand, path) is True
    for path in ("other", "secret/other", str(tmp_path), "~/plain", "pl?in", ""):
        assert holds("leads_to", operand, path) is False
    assert holds("leads_to", "(.*/)?secret", "plain") is False  # nobody knows where relative paths start
    assert holds("leads_to", "(.*/)?secret", str(tmp_path / "plain")) is True
    assert holds("leads_to", operand, 7) is None


@pytest.mark.parametrize(
    "operand",
    [7, None, "(", {}, {"regex": "("}, {"regex": "x", "relative_to": "a"}, {"regex": "x", "like": 1}],
)
def test_what_no_path_can_lead_to(operand: Any) -> None:
    with pytest.raises(InvalidPolicy):
        ArgConstraint("x", "leads_to", operand)
