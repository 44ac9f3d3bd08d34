"""SKILL.md: written, read again, and refused where it is no such thing."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askfirst.client.skill import (
    HEADING,
    MOST_CHARACTERS,
    Skill,
    SkillHitl,
    hitl_section,
    read_skill,
    write_skill,
)
from askfirst.errors import InvalidSkill, MissingExtra
from askfirst.protocol import ACTIONS

HITL = SkillHitl(
    types=("selection", "confirmation", "x-seating"),
    review_base_url="https://jobs.example/review",
    timeout_default="24h",
    info="Asks which jobs to apply for.",
)
SKILL = Skill("job-search", "Finds jobs: and applies for them.", HITL, "# Jobs\n\nSearch with `GET /jobs`.")

FOREIGN = """\
---
name: job-search-pro
description: "Search and apply for jobs."
license: Apache-2.0
compatibility:
  - claude
  - codex
metadata:
  version: "0.5"
  hitl:
    supported: true
    types: [selection, confirmation]
    review_base_url: "https://jobboard.example.com/review"
    timeout_default: PT24H
---

# Jobs
"""


def test_a_skill_is_the_same_after_writing_and_reading() -> None:
    again = read_skill(write_skill(SKILL))
    assert again == Skill(
        SKILL.name, SKILL.description, HITL, f"{SKILL.body}\n\n{hitl_section(HITL)}".rstrip("\n")
    )
    assert write_skill(again) == write_skill(SKILL), "the section is there once"


def test_the_body_tells_an_agent_what_to_do() -> None:
    section = write_skill(SKILL).partition(HEADING)[2]
    for word in (
        *("202", "hitl.review_url", "hitl.prompt", "hitl.poll_url", "Retry-After"),
        *("result.action", "result.data", "default_action", "expired", "cancelled", "reason"),
        *HITL.types,
        HITL.info or "",
    ):
        assert word in section


def test_a_section_of_ones_own_stays() -> None:
    own = Skill("jobs", "Jobs.", HITL, f"# Jobs\n\n{HEADING}\n\nAsk Ann.")
    assert read_skill(write_skill(own)) == own


@pytest.mark.parametrize("hitl", [None, SkillHitl(supported=False)])
def test_a_skill_without_reviews_has_no_section(hitl: SkillHitl | None) -> None:
    text = write_skill(Skill("jobs", "Jobs.", hitl, "# Jobs"))
    assert HEADING not in text
    assert read_skill(text).hitl == hitl


def test_a_skill_of_somebody_elses() -> None:
    skill = read_skill(FOREIGN)
    assert skill.hitl == SkillHitl(
        True, ("selection", "confirmation"), "https://jobboard.example.com/review", "PT24H"
    )
    assert skill.more == {
        "license": "Apache-2.0",
        "compatibility": ["claude", "codex"],
        "metadata": {"version": "0.5"},
    }
    assert skill.body == "# Jobs"
    again = read_skill(write_skill(skill))
    assert (again.more, again.hitl) == (skill.more, skill.hitl)


def test_other_line_ends_and_a_byte_order_mark() -> None:
    assert read_skill("\ufeff" + FOREIGN.replace("\n", "\r\n")).hitl == read_skill(FOREIGN).hitl


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words.filter(bool), inner, max_size=3),
    max_leaves=8,
)
hitls = st.builds(
    SkillHitl,
    st.booleans(),
    st.lists(st.sampled_from([*ACTIONS, "x-own"]), max_size=3).map(tuple),
    st.sampled_from([None, "https://a.example/review", "http://localhost:8000"]),
    st.sampled_from([None, "24h", "P7D", "PT30M"]),
    st.none() | words,
)


@given(
    description=words.filter(lambda text: text.strip()),
    hitl=st.none() | hitls,
    more=st.dictionaries(
        words.filter(lambda key: key not in ("name", "description", "metadata")), plain, max_size=3
    ),
)
def test_any_front_matter_survives(description: str, hitl: SkillHitl | None, more: dict[str, Any]) -> None:
    again = read_skill(write_skill(Skill("a-skill", description, hitl, "# Body", more)))
    assert (again.description, again.hitl, again.more) == (description, hitl, more)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\n"):
        with suppress(InvalidSkill):  # and no other error
            assert read_skill(whole).name


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{c}: &{c} [*{p}, *{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("front", "fault"),
    [
        ("name: !!python/object/apply:os.system [echo]\ndescription: x", "line 2: the tag"),
        (LAUGHS, "write it out there, without an alias"),
        ("name: a\ndescription: &d x\nmore: *d", "without an alias"),
        ("name: [" * 5000, "not YAML"),
        ("name: a\n\tdescription: x", "not YAML"),
        ("- name\n- description", "is an object"),
        ("name: a", "description is missing"),
        ("name: 7\ndescription: x", "line 2: name is missing, or no text"),
        ("name: a\nname: b\ndescription: x", "line 3: the key 'name' is there twice"),
        ("name: a\ndescription: x\nmetadata: [hitl]", "line 4: metadata is an object"),
        ("name: a\ndescription: x\nmetadata:\n  hitl: yes", "metadata.hitl is an object"),
        ("name: a\ndescription: x\n1: one", "a name is text"),
        (f"name: a\ndescription: {'9' * 5000}", "not YAML that can be read"),
    ],
)
def test_hostile_or_broken_front_matter(front: str, fault: str) -> None:
    with pytest.raises(InvalidSkill) as refused:
        read_skill(f"---\n{front}\n---\n# Body\n")
    assert fault in str(refused.value)


def test_everything_wrong_with_the_declaration_is_said_at_once() -> None:
    text = """\
---
name: a
description: b
metadata:
  hitl:
    supported: sometimes
    types: [approval, dance]
    review_base_url: http://reviews.example
    timeout_default: soon
    info: 12
    colour: red
---
"""
    with pytest.raises(InvalidSkill) as refused:
        read_skill(text)
    assert [fault.partition(":")[0] for fault in refused.value.faults] == [
        *("line 11", "line 6", "line 7", "line 8", "line 9", "line 10"),
    ]


@pytest.mark.parametrize("text", ["", "# No front matter", "---\nname: a\n", "--- name: a ---"])
def test_no_front_matter(text: str) -> None:
    with pytest.raises(InvalidSkill, match="begins with front matter"):
        read_skill(text)


def test_too_much_of_it() -> None:
    with pytest.raises(InvalidSkill, match="more than"):
        read_skill("---\nname: a\n---\n" + "x" * MOST_CHARACTERS)
    with pytest.raises(InvalidSkill, match="front matter has more than"):
        read_skill(f"---\nname: {'a' * 70_000}\n---\n")


@pytest.mark.parametrize(
    "skill",
    [
        Skill("Job Search", "x"),
        Skill("a--b", "x"),
        Skill("a", ""),
        Skill("a", "x" * 1025),
        Skill("a", "x", more={"name": "b"}),
        Skill("a", "x", more={"metadata": {"hitl": {}}}),
        Skill("a", "x", more={"metadata": "none"}),
        Skill("a", "x", SkillHitl(types=("dance",))),
        Skill("a", "x", SkillHitl(info="x" * 201)),
    ],
)
def test_what_is_not_written(skill: Skill) -> None:
    with pytest.raises(InvalidSkill):
        write_skill(skill)


def test_without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"askfirst\[client\]"):
        read_skill(FOREIGN)
