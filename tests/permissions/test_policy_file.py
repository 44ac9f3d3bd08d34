"""Policy files: three formats, one meaning, and for every mistake its line and a sentence."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.errors import InvalidPolicy, MissingExtra
from askfirst.permissions import Decision, PendingAction, StaticPermissionPolicy, load_rules
from askfirst.permissions.line_numbers import read_json, read_toml

GOOD = {
    "policy.yaml": """\
default: ask
rules:
  # small sums go through
  - id: small
    principal: "*"
    scope:
      toolset: billing
      tool: refund
      arg_constraints:
        - {path: cents, lte: 500}
        - path: country
          in: [NO, SE]
    effect: allow
  - id: never
    scope: {tool: "delete_*"}
    effect: deny
""",
    "policy.toml": """\
default = "ask"

[[rules]]  # small sums go through
id = "small"
principal = "*"
effect = "allow"

[rules.scope]
toolset = "billing"
tool = "refund"

[[rules.scope.arg_constraints]]
path = "cents"
lte = 500

[[rules.scope.arg_constraints]]
path = "country"
in = ["NO", "SE"]

[[rules]]
id = "never"
scope = { tool = "delete_*" }
effect = "deny"
""",
    "policy.json": """\
{
  "default": "ask",
  "rules": [
    {
      "id": "small",
      "principal": "*",
      "scope": {
        "toolset": "billing",
        "tool": "refund",
        "arg_constraints": [{"path": "cents", "lte": 500}, {"path": "country", "in": ["NO", "SE"]}]
      },
      "effect": "allow"
    },
    {"id": "never", "scope": {"tool": "delete_*"}, "effect": "deny"}
  ]
}
""",
}


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", GOOD)
def test_the_three_formats_say_the_same(tmp_path: Path, name: str) -> None:
    policy = StaticPermissionPolicy.from_file(written(tmp_path, name, GOOD[name]), default=Decision.allow())
    expected = json.loads(GOOD["policy.json"])
    assert policy.rules == StaticPermissionPolicy(expected["rules"]).rules
    assert policy.rules == load_rules(tmp_path / name)
    assert policy.default == Decision.ask("no rule matched")
    refund = PendingAction(tool="refund", toolset="billing", args={"cents": 5, "country": "NO"})
    assert policy.evaluate(refund).matched_rule_id == "small"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yml", "- id: a\n  effect: deny\n"),
        ("p.json", '\ufeff[{"id": "a", "effect": "deny"}]'),
        ("p.YAML", "rules: [{id: a, effect: deny}]"),
        ("p.toml", 'rules = [{id = "a", effect = "deny"}]'),
    ],
)
def test_a_bare_list_and_the_default_of_the_code(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, text)
    assert [rule.id for rule in load_rules(path)] == ["a"]
    assert StaticPermissionPolicy.from_file(path).default.verdict == "deny"
    assert StaticPermissionPolicy.from_file(str(path), Decision.ask()).default == Decision.ask()


def test_a_default_as_an_object(tmp_path: Path) -> None:
    path = written(tmp_path, "p.yaml", "default: {allowed: true, requires_approval: false}\nrules: []\n")
    assert StaticPermissionPolicy.from_file(path).default == Decision.allow()


def test_yaml_is_read_as_plainly_as_json(tmp_path: Path) -> None:
    words = "[no, on, 1:30, 0o17, 2024-01-01, '5', 5, -1.5, 1e3, true, null, ~, !!str x]"
    text = f"- id: a\n  effect: deny\n  scope: {{arg_constraints: [{{path: x, in: {words}}}]}}\n"
    [rule] = load_rules(written(tmp_path, "p.yaml", text))
    assert rule.scope.arg_constraints[0].value == [
        "no",
        "on",
        "1:30",
        "0o17",
        "2024-01-01",
        "5",
        5,
        -1.5,
        1000.0,
        True,
        None,
        None,
        "x",
    ]


# Mistakes.


def problems_of(path: Path) -> list[tuple[int, str]]:
    """Line and sentence of every mistake; each names the file and its line."""
    with pytest.raises(InvalidPolicy) as caught:
        load_rules(path)
    error = caught.value
    assert error.file == str(path)
    assert str(error) == "\n".join(error.problems)
    assert len(error.problems) == len(error.lines)
    found: list[tuple[int, str]] = []
    for problem, line in zip(error.problems, error.lines, strict=True):
        start = f"{path}:{line}: "
        assert problem.startswith(start)
        assert "\n" not in problem
        found.append((line, problem.removeprefix(start)))
    return found


BAD = {
    "bad.yaml": """\
default: maybe
rules:
  - id: one
    efect: allow
  - id: two
    effect: alow
  - effect: deny
    scope:
      tool: 5
      tols: x
      arg_constraints:
        - path: cents
          lte: "500"
        - path: a..b
          equals: 1
        - path: to
          regex: "a("
        - path: to
          like: x
        - path: to
        - {path: to, lt: 5, gt: 1}
        - {path: to, host_in: "https://x"}
        - cents
  - id: two
    effect: deny
  - id: ""
    principal: [ann]
    effect: [allow]
  - id: six
    effect: allow_unless_matches
  - just words
  - id: eight
    effect: deny
    scope: everything
  - id: nine
    effect: deny
    scope:
      arg_constraints: {path: x, lt: 1}
ruls: []
""",
    "bad.toml": """\
default = "maybe"
ruls = []

[[rules]]
id = "one"
efect = "allow"

[[rules]]
id = "two"
effect = "alow"

[[rules]]
effect = "deny"

[rules.scope]
tool = 5
tols = "x"

[[rules.scope.arg_constraints]]
path = "cents"
lte = "500"

[[rules.scope.arg_constraints]]
path = "a..b"
equals = 1

[[rules.scope.arg_constraints]]
path = "to"
regex = '''
a('''

[[rules.scope.arg_constraints]]
path = "to"
like = "x"

[[rules.scope.arg_constraints]]
path = "to"

[[rules]]
id = "two"
effect = "deny"

[[rules]]
id = ""
principal = ["ann"]
effect = ["allow"]

[[rules]]
id = "six"
effect = "allow_unless_matches"

[[rules]]
id = "eight"
effect = "deny"
scope = "everything"

[[rules]]
id = "nine"
effect = "deny"
scope.arg_constraints = [
  # not this one
  { path = "x", lt = 1 },
  { path = "y", lt = "]" },
  { path = "z", gt = "}" },
]
""",
    "bad.json": """\
{
  "default": "maybe",
  "rules": [
    {"id": "one", "efect": "allow"},
    {
      "id": "two",
      "effect": "alow"
    },
    {
      "effect": "deny",
      "scope": {
        "tool": 5,
        "tols": "x",
        "arg_constraints": [
          {"path": "cents",
           "lte": "500"},
          {"path": "a..b", "equals": 1},
          {"path": "to", "regex": "a("},
          {"path": "to", "like": "x"},
          {"path": "to"}
        ]
      }
    },
    {"id": "two", "effect": "deny"},
    7
  ],
  "ruls": []
}
""",
}
EFFECTS = "allow, deny, require_approval, allow_unless_matches, deny_unless_matches"
TESTS = "equals, not_equals, in, not_in, glob, regex, lt, lte, gt, gte, within, leads_to, host_in"
DEFAULT = "default is one of allow, ask, deny, or an object with allowed and requires_approval"
NO_EFFECT = f"rule 'one': it needs an effect: one of {EFFECTS}"
KEYS = "id, principal, scope, effect, approval_timeout, reason, risk, hold_seconds"
NO_EFECT = f"rule 'one': a rule has no 'efect'; it has {KEYS}"
WRONG_EFFECT = f"rule 'two': effect is one of {EFFECTS}, not 'alow'"
TAKEN = "rule 'two': its id is taken by rule number 2; give each its own"
RULS = "a policy file has no 'ruls'; it has default and rules"


def third(sentence: str) -> str:
    return f"rule number 3: {sentence}"


NO_ID = third("it needs an id of its own")
WRONG_TOOL = third("tool is text and not empty, not int")
NO_TOLS = third("scope has no 'tols'; it has toolset, tool, arg_constraints")
WRONG_NUMBER = third("lte needs a number, not text")
WRONG_PATH = third("the path 'a..b' has an empty step")
WRONG_REGEX = third("regex is no regular expression that can be used: unclosed group")
NO_LIKE = third(f"a constraint has no 'like'; it has path, {TESTS}")
NO_TEST = third(f"a constraint has one test (one of {TESTS}), not none")
SAID: dict[str, list[tuple[int, str]]] = {
    "bad.yaml": [
        (1, DEFAULT),
        (3, NO_EFFECT),
        (4, NO_EFECT),
        (6, WRONG_EFFECT),
        (7, NO_ID),
        (9, WRONG_TOOL),
        (10, NO_TOLS),
        (13, WRONG_NUMBER),
        (14, WRONG_PATH),
        (17, WRONG_REGEX),
        (19, NO_LIKE),
        (20, NO_TEST),
        (21, third(f"a constraint has one test (one of {TESTS}), not 2")),
        (22, third("host_in has the host 'https://x'; write it without scheme and port")),
        (23, third(f"a constraint is an object with path, {TESTS}, not text")),
        (24, TAKEN),
        (26, "rule number 5: id is text and not empty"),
        (27, "rule number 5: principal is text and not empty, not list"),
        (28, f"rule number 5: effect is one of {EFFECTS}, not list"),
        (30, "rule 'six': allow_unless_matches needs arg_constraints that could match"),
        (
            31,
            f"rule number 7: a rule is an object with {KEYS}, not text",
        ),
        (34, "rule 'eight': scope is an object with toolset, tool, arg_constraints, not text"),
        (38, "rule 'nine': arg_constraints is a list, not an object"),
        (39, RULS),
    ],
    "bad.toml": [
        (1, DEFAULT),
        (2, RULS),
        (4, NO_EFFECT),
        (6, NO_EFECT),
        (10, WRONG_EFFECT),
        (12, NO_ID),
        (16, WRONG_TOOL),
        (17, NO_TOLS),
        (21, WRONG_NUMBER),
        (24, WRONG_PATH),
        (29, WRONG_REGEX),
        (34, NO_LIKE),
        (36, NO_TEST),
        (40, TAKEN),
        (44, "rule number 5: id is text and not empty"),
        (45, "rule number 5: principal is text and not empty, not list"),
        (46, f"rule number 5: effect is one of {EFFECTS}, not list"),
        (50, "rule 'six': allow_unless_matches needs arg_constraints that could match"),
        (55, "rule 'eight': scope is an object with toolset, tool, arg_constraints, not text"),
        (63, "rule 'nine': lt needs a number, not text"),
        (64, "rule 'nine': gt needs a number, not text"),
    ],
    "bad.json": [
        (2, DEFAULT),
        (4, NO_EFECT),
        (4, NO_EFFECT),
        (7, WRONG_EFFECT),
        (9, NO_ID),
        (12, WRONG_TOOL),
        (13, NO_TOLS),
        (16, WRONG_NUMBER),
        (17, WRONG_PATH),
        (18, WRONG_REGEX),
        (19, NO_LIKE),
        (20, NO_TEST),
        (24, TAKEN),
        (
            25,
            f"rule number 5: a rule is an object with {KEYS}, not a number",
        ),
        (27, RULS),
    ],
}


@pytest.mark.parametrize("name", BAD)
def test_every_mistake_gets_its_line_and_a_sentence(tmp_path: Path, name: str) -> None:
    assert problems_of(written(tmp_path, name, BAD[name])) == SAID[name]


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        (
            "p.yaml",
            "rules:\n\t- id: a\n",
            2,
            "this is not YAML: while scanning for the next token found character",
        ),
        ("p.yaml", "rules:\n  - id: a\n effect: x\n", 3, "this is not YAML: "),
        ("p.yaml", "rules: []\n---\nrules: []\n", 2, "this is not YAML: expected a single document"),
        ("p.yaml", "rules: [\x00]", 1, "this is not YAML: special characters are not allowed"),
        ("p.yaml", "a: 1\nrules: []\na: 2\n", 3, "the key 'a' is there twice"),
        ("p.yaml", "x: &a [1]\nrules: *a\n", 1, "this is used again further down"),
        ("p.yaml", "rules: &a\n  - *a\n", 1, "this is used again further down"),
        ("p.yaml", "rules:\n  - !!python/object:os.system x\n", 2, "the tag tag:yaml.org,2002:python/object"),
        ("p.yaml", "rules:\n  - !env x\n", 2, "the tag !env means nothing here"),
        ("p.yaml", "rules:\n  - ? [a]\n    : 1\n", 2, "a key is a word here"),
        ("p.yaml", f"rules: {'9' * 5000}\n", 1, "this is not YAML that can be read"),
        ("p.yaml", "[" * 5000, 1, "this is not YAML that can be read: it nests too deep"),
        ("p.yaml", "", 1, "rules are a list, not nothing"),
        ("p.yaml", "default: deny\n", 1, "a policy file needs rules: a list of them"),
        ("p.yaml", "default: [deny]\nrules: {a: 1}\n", 2, "rules are a list, not an object"),
        ("p.yaml", "rules: []\ndefault:\n  alowed: true\n", 2, "default: a decision has no alowed"),
        (
            "p.yaml",
            "rules: []\ndefault: {allowed: 1, requires_approval: false}\n",
            2,
            "is true or false, not int",
        ),
        ("p.yaml", b"rules:\n  - \xff\n", 2, "this is no UTF-8"),
        ("p.toml", "[[rules]]\nid = a\n", 2, "this is not TOML: Invalid value"),
        ("p.toml", '[[rules]]\nid = "a"\nid = "b"\n', 3, "this is not TOML: Cannot overwrite a value"),
        ("p.toml", "rules = [\n  1,\n", 3, "this is not TOML: "),
        (
            "p.toml",
            'rules = [\n  {id = "a", effect = "deny"},\n  7,\n]',
            3,
            "rule number 2: a rule is an object",
        ),
        ("p.toml", f"rules = {'9' * 5000}\n", 1, "this is not TOML that can be read"),
        ("p.toml", "rules = " + "[" * 5000, 1, "this is not TOML that can be read: it nests too deep"),
        ("p.json", '{\n "rules": [\n  {"id": "a",}\n ]\n}', 3, "this is not JSON: a key in double quotes"),
        ("p.json", '{\n "rules" []}', 2, "this is not JSON: a colon should stand here"),
        ("p.json", '{\n "rules": [1 2]}', 2, "this is not JSON: a comma or ']' should stand here"),
        ("p.json", '{"rules": []\n "default": 1}', 2, "this is not JSON: a comma or '}' should stand here"),
        ("p.json", "[\n]\n[]", 3, "this is not JSON: there is more text after its end"),
        ("p.json", "[\n\n  yes\n]", 3, "this is not JSON: Expecting value"),
        ("p.json", '[\n  "a\n"]', 2, "this is not JSON: Invalid control character"),
        ("p.json", "[\n\n NaN]", 3, "this is not JSON: NaN is not JSON"),
        ("p.json", '{"rules": [],\n "rules": []}', 2, "the key 'rules' is there twice"),
        ("p.json", f"[{'9' * 5000}]", 1, "this is not JSON that can be read"),
        ("p.json", "[" * 100_000, 1, "this is not JSON that can be read: it nests too deep"),
        ("p.json", "", 1, "this is not JSON: Expecting value"),
    ],
)
def test_text_that_cannot_be_read(tmp_path: Path, name: str, text: Any, line: int, said: str) -> None:
    problems = problems_of(written(tmp_path, name, text))
    assert [found for found, sentence in problems if said in sentence] == [line], problems


def test_files_that_are_not_there_or_of_no_known_kind(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicy, match=r"cannot be read: No such file") as caught:
        load_rules(tmp_path / "none.yaml")
    assert caught.value.file == str(tmp_path / "none.yaml")
    with pytest.raises(InvalidPolicy, match=r"ends in \.yaml, \.yml, \.toml, \.json, not in '\.ini'"):
        load_rules(written(tmp_path, "p.ini", ""))


def test_yaml_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_yaml(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(MissingExtra, match=r"pip install 'askfirst\[yaml\]'"):
        load_rules(written(tmp_path, "p.yaml", "[]"))
    assert load_rules(written(tmp_path, "p.json", "[]")) == ()


# The readers against Python's own.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.sampled_from([None, 0, 2]))
def test_json_is_read_as_python_reads_it(value: Any, indent: int | None) -> None:
    assert read_json(json.dumps(value, indent=indent)).value == value


@given(st.text(alphabet='[]{}",:0a \n\\', max_size=20))
def test_json_is_refused_where_python_refuses_it(text: str) -> None:
    from askfirst.permissions.line_numbers import Unreadable

    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(Unreadable):
            read_json(text)
    else:
        assert read_json(text).value == expected


@given(
    st.lists(
        st.sampled_from(["string", "block", "literal", "comment", "array", "table", "blank"]), max_size=8
    )
)
def test_toml_rules_are_found_whatever_stands_between(between: list[str]) -> None:
    fillers = {
        "string": 'k{n} = "[[rules]] \\" # no"',
        "block": 'k{n} = """\n[[rules]]\nid = 1 \\""" # no\n"""',
        "literal": "k{n} = '''\n[[rules]]\n'''",
        "comment": "# [[rules]]",
        "array": "k{n} = [\n  1, # ]\n  [2, ']'],\n]",
        "table": 'k{n} = {{ "a b" = [1], c.d = 1979-05-27 07:32:00 }}',
        "blank": "",
    }
    lines: list[int] = []
    text = ""
    for number, kind in enumerate(between):
        lines.append(text.count("\n") + 1)
        text += f'[[rules]]\nid = "{number}"\n' + fillers[kind].format(n=number) + "\n"
    located = read_toml(text)
    assert [located.line_of(("rules", number)) for number in range(len(between))] == lines
    assert [located.line_of(("rules", number, "id")) for number in range(len(between))] == [
        n + 1 for n in lines
    ]
