"""The README and docs/: every example runs, every public name has its place, every link leads somewhere."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, get_args

import pytest
from kit.paths import ROOT
from opentelemetry import trace
from opentelemetry.util._once import Once
from pydantic import BaseModel

import askfirst
from askfirst import (
    answers,
    approvals,
    channels,
    checkpoints,
    errors,
    events,
    hitl,
    messages,
    models,
    permissions,
    protocol,
    requests,
)
from askfirst.agent import result
from askfirst.checkpointer import base, connect
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.mysql import MySQLCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.hitl import middleware as hitl_middleware
from askfirst.hitl import testing
from askfirst.permissions import GrantStore
from askfirst.permissions.constraints import TESTS
from askfirst.permissions.rules import EFFECTS
from askfirst.service import app as service_app
from askfirst.service import embedding, verification
from askfirst.service.new_review import ReviewRequest

DOCS = ROOT / "docs"
TRANSLATED = sorted((DOCS / "zh").rglob("*.md"))
ORIGINALS = sorted(page for page in DOCS.rglob("*.md") if page not in TRANSLATED)
PAGES = [ROOT / "README.md", *ORIGINALS, *TRANSLATED]
LINKED = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "examples").glob("*/README.md")),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


pages = pytest.mark.parametrize("page", PAGES, ids=named)


# Code blocks.


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and the line in the page where the text begins."""

    info: str
    text: str
    line: int
    follows: bool = False
    """Whether only blank lines, or a sentence that ends in a colon, stand between it and a Python block."""


FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMISES = re.compile(r"\s*(`[^`]+` prints:\s*)?")


def blocks_of(text: str) -> list[Block]:
    found: list[Block] = []
    end, last = 0, ""
    for match in FENCE.finditer(text):
        between = text[end : match.start()]
        follows = last == "python" and PROMISES.fullmatch(between) is not None
        found.append(Block(match[1].strip(), match[2], text[: match.start(2)].count("\n"), follows))
        end, last = match.end(), match[1].strip()
    return found


def examples(text: str) -> Iterator[tuple[Block, str | None]]:
    """The runnable blocks, each with what it is said to print."""
    for block, after in pairwise([*blocks_of(text), None]):
        if block and block.info == "python":
            yield block, after.text if after and after.info == "text" and after.follows else None


def compiled(block: Block, page: Path) -> CodeType:
    source = "\n" * block.line + block.text
    return compile(source, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pages
def test_examples_run(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each page in a folder and with a tracer provider of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with asyncio.Runner() as runner:
        for block, promised in examples(page.read_text()):
            code = compiled(block, page)
            returned = eval(code, module.__dict__)  # noqa: S307  (our own pages)
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(returned)
            printed = capsys.readouterr().out
            assert promised is None or printed == promised, f"{page.name}, line {block.line}"


@pages
def test_info_strings_are_known(page: Path) -> None:
    assert {block.info for block in blocks_of(page.read_text())} <= {
        "python",
        "python no-run",
        "text",
        "bash",
        "json",
        "toml",
        "yaml",
    }


@pages
def test_blocks_that_do_not_run_need_a_network_and_are_valid(page: Path) -> None:
    for block in blocks_of(page.read_text()):
        if block.info == "python no-run":
            compiled(block, page)
            # What is part of an example is run there, see test_guides.py and test_first_page.py beside this.
            run = [*(ROOT / "examples").glob("*/with_*.py"), ROOT / "examples" / "ten_lines.py"]
            in_example = any(block.text in path.read_text() for path in run)
            # Pages of frameworks are run by tests/adapters/frameworks, in the environment of each framework, and so
            # are the lines of the README for them.
            of_a_framework = page.parent.name == "frameworks" or "from askfirst.adapters." in block.text
            assert in_example or of_a_framework or "PydanticAIModel" in block.text


@pages
def test_blocks_are_formatted(page: Path) -> None:
    for block in blocks_of(page.read_text()):
        if block.info.startswith("python"):
            assert max(map(len, block.text.splitlines())) <= 120, f"{page.name}, line {block.line}"


def test_blocks_of_reads_pages_as_described() -> None:
    text = "a\n```python\nx\n```\n\n```text\nout\n```\nb\n```text\nother\n```\n```python no-run\ny\n```\n"
    assert [(block.info, block.text, block.follows) for block in blocks_of(text)] == [
        ("python", "x\n", False),
        ("text", "out\n", True),
        ("text", "other\n", False),
        ("python no-run", "y\n", False),
    ]
    assert [(block.text, promised) for block, promised in examples(text)] == [("x\n", "out\n")]


# The README, word for word.


def test_the_readme_agent_in_an_empty_folder(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    block, promised = next(examples(readme.partition("Save this as `agent.py`")[2]))
    assert "`python agent.py` prints:" in readme
    (tmp_path / "agent.py").write_text(block.text)
    done = subprocess.run(
        [sys.executable, "agent.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (promised, "", 0)


def test_the_readme_agent_has_fifteen_lines_and_is_an_example() -> None:
    block, _ = next(examples((ROOT / "README.md").read_text().partition("Save this as `agent.py`")[2]))
    assert len([line for line in block.text.splitlines() if line.strip()]) == 15
    assert block.text == (ROOT / "examples" / "fifteen_lines.py").read_text()


def test_the_readme_starts_with_the_two_commands() -> None:
    first = blocks_of((ROOT / "README.md").read_text())[0]
    assert [line.split()[0] for line in first.text.splitlines()] == ["scripts/demo", "scripts/test"]
    assert all((ROOT / line.split()[0]).is_file() for line in first.text.splitlines())


# Every public name.


def public_names(module: ModuleType) -> list[str]:
    """What a module defines at its top level, without an underscore and not imported."""
    names: list[str] = []
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


CHECKPOINTERS = (MemoryCheckpointer, SQLiteCheckpointer, PostgresCheckpointer, MySQLCheckpointer)
DEFINING = (answers, channels, errors, events, messages, requests, base, connect, hitl_middleware, approvals)
INTERNAL = {
    "CallAnswer",
    "Frozen",
    "KINDS",
    "Made",
    "UNWRITABLE",
    "Why",
    "attributed",
    "check_depth",
    "check_in_time",
    "check_names",
    "check_reason",
    "check_seen",
    "decision_in",
    "invalid_value",
    "plain_init",
    "schema_check",
    "unwritable",
    "without_attribution",
    "without_edits",
}
"""What other rooms of the package use of these modules, and what is no part of the API."""
ALL_NAMES = sorted(
    {
        *askfirst.__all__,
        *checkpoints.__all__,
        *models.__all__,
        *hitl.__all__,
        *testing.__all__,
        *permissions.__all__,
        *protocol.__all__,
        *(name for m in DEFINING for name in public_names(m) if name not in INTERNAL),
        *(cls.__name__ for cls in CHECKPOINTERS),
    }
)


def mentioned(name: str, text: str) -> bool:
    """Whether a name stands in code type: alone, or with something behind it."""
    return re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", text) is not None


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    assert any(mentioned(name, prose(page)) for page in ORIGINALS)


def test_public_names_are_found() -> None:
    assert {"encode", "Message", "StopReason", "Usage"} <= set(public_names(messages))
    assert "BaseModel" not in public_names(messages)


def fields_of(cls: type) -> list[str]:
    if issubclass(cls, tuple):  # a `NamedTuple`
        return list(inspect.signature(cls).parameters)
    return [field.name for field in dataclasses.fields(cls) if field.init and not field.name.startswith("_")]


def parameters_of(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def members_of(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def public_members(cls: type) -> list[str]:
    """Its own and inherited members."""
    return [name for name in dir(cls) if not name.startswith("_")]


PAYLOADS = [
    cls
    for cls in (getattr(requests, name) for name in public_names(requests))
    if inspect.isclass(cls) and issubclass(cls, BaseModel)
]
WIRE_OBJECTS = [
    cls
    for cls in (getattr(protocol, name) for name in protocol.__all__)
    if inspect.isclass(cls) and issubclass(cls, BaseModel)
]
VERBS = ("confirm", "approve", "ask", "escalate")
HITL_CLASSES = (
    hitl.InMemoryChannel,
    hitl.CheckpointedChannel,
    hitl.ConfirmToolCallMiddleware,
    hitl.ApprovalPolicyMiddleware,
    hitl.Deny,
    hitl.AskUser,
)
PERMISSION_VALUES = (
    permissions.Decision,
    permissions.PendingAction,
    permissions.Rule,
    permissions.Scope,
    permissions.ArgConstraint,
    permissions.Explanation,
    permissions.PassedRule,
    permissions.Grant,
    permissions.ActionGuardrail,
)
RUNNERS = (askfirst.run_agent, askfirst.run_agent_resume, checkpoints.resume_checkpoint)
INSIDE = {"fit", "forget_request", *members_of(askfirst.Middleware)}
RESPONDING = {"channel", "detach", "respond", "abort_pending", "prompt", "resume", "load"}

MEMBERS = {
    "guide/agent.md": [
        *parameters_of(askfirst.Agent.__init__),
        *members_of(askfirst.Agent),
        *fields_of(askfirst.AgentSpec),
        *fields_of(askfirst.AgentResult),
    ],
    "guide/checkpoints.md": [
        *approvals.PendingApproval.model_fields,
        *approvals.ApprovalResponse.model_fields,
        *result.RunCheckpoint.model_fields,
        *result.SerializedSession.model_fields,
        *result.CheckpointUsage.model_fields,
        "question_id",
        "to_json",
        "from_json",
        *fields_of(askfirst.StreamEnvelope),
        *fields_of(checkpoints.SavedCheckpoint),
        *members_of(checkpoints.RunCheckpointStore),
        *parameters_of(checkpoints.RunCheckpointStore.__init__),
        *(name for function in RUNNERS for name in parameters_of(function)),
        "run_agent_stream",
        "run_agent_resume_stream",
        *checkpoints.__all__,
    ],
    "guide/subagents.md": parameters_of(askfirst.subagent_tool),
    "guide/tools.md": [
        *fields_of(askfirst.Tool),
        *fields_of(askfirst.ToolContext),
        *members_of(askfirst.ToolContext),
        *fields_of(askfirst.ToolResult),
    ],
    "guide/middleware.md": [
        *members_of(askfirst.Middleware),
        *fields_of(askfirst.BeforeToolCallResult),
        *fields_of(askfirst.ToolCallContext),
        *fields_of(askfirst.ModelCallContext),
    ],
    "guide/models.md": [
        *fields_of(models.ModelSettings),
        *fields_of(models.ModelRequest),
        *fields_of(models.ToolSchema),
        *members_of(models.Model),
        *parameters_of(models.PydanticAIModel.__init__)[1:],
    ],
    "guide/permissions.md": [
        *(name for cls in PERMISSION_VALUES for name in fields_of(cls)),
        *members_of(permissions.GrantStore),
        *members_of(permissions.SessionPermissionCache),
        *parameters_of(permissions.SessionPermissionCache.__init__),
        *parameters_of(permissions.SessionPermissionCache.remember),
        *parameters_of(permissions.StaticPermissionPolicy.__init__),
        *parameters_of(permissions.decide),
        *members_of(permissions.BatchPolicy),
        *TESTS,
        *EFFECTS,
    ],
    "guide/durability.md": [
        *(name for cls in (base.Step, base.Settlement, base.RunRecord) for name in fields_of(cls)),
        *(name for cls in (base.StoredThread, base.StoredRun, base.StoredEffect) for name in fields_of(cls)),
        *fields_of(base.ThreadInfo),
        *fields_of(base.StoredCheckpoint),
        *(name for cls in (base.CheckpointKeeper, GrantStore) for name in members_of(cls)),
        *(name for cls in CHECKPOINTERS for name in parameters_of(cls.__init__)),
    ],
    "guide/testing.md": [
        *members_of(testing.FakeClock),
        *fields_of(testing.RaceOutcome),
        *members_of(testing.RaceOutcome),
        *parameters_of(testing.race_answers),
        *parameters_of(testing.crash_at),
    ],
    "reference/protocol.md": [
        *protocol.__all__,
        *(field.alias or name for cls in WIRE_OBJECTS for name, field in cls.model_fields.items()),
        *members_of(protocol.SigningKey),
    ],
    "operate/service.md": [
        *parameters_of(service_app.create_app),
        *public_names(embedding),
        *(name for name in parameters_of(embedding.human_input_required) if name != "review"),
        *ReviewRequest.model_fields,
        "VerificationProvider",
        *parameters_of(verification.Finding.__init__),
    ],
    "reference/hitl.md": [
        *(name for cls in PAYLOADS for name in cls.model_fields),
        *fields_of(requests.StoredRequest),
        *members_of(channels.HitlChannel),
        *members_of(channels.ChannelHost),
        *(name for verb in VERBS for name in parameters_of(getattr(hitl.HitlChannel, verb))),
        *(name for cls in HITL_CLASSES for name in parameters_of(cls.__init__)),
        *(name for cls in HITL_CLASSES for name in public_members(cls) if name not in INSIDE),
        *members_of(base.Checkpointer),
        *members_of(base.CheckpointKeeper),
        *members_of(GrantStore),
        *(name for name in members_of(askfirst.Agent) if "hitl" in name or name in RESPONDING),
        *hitl.__all__,
        *testing.__all__,
    ],
}


@pytest.mark.parametrize(("page", "name"), [(page, name) for page in MEMBERS for name in MEMBERS[page]])
def test_every_option_and_member_is_on_its_page(page: str, name: str) -> None:
    assert mentioned(name, prose(DOCS / page))


def row_of(name: str, page: Path) -> str:
    """The table row that begins with a name."""
    rows = [line for line in page.read_text().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1, f"{page.name} needs one row for {name}"
    return rows[0]


EVENTS = [cls for cls in vars(events).values() if inspect.isclass(cls) and issubclass(cls, events.Event)]


@pytest.mark.parametrize("event", [cls for cls in EVENTS if cls is not events.Event])
def test_every_event_has_its_row(event: type[events.Event]) -> None:
    row = row_of(event.__name__, DOCS / "reference/events.md")
    assert f"`{event.model_fields['type'].default}`" in row
    own = set(event.model_fields) - set(events.Event.model_fields) - {"type"}
    assert own == set(re.findall(r"`(\w+)`", row.split("|")[3]))


def test_the_union_has_every_event() -> None:
    assert set(get_args(get_args(events.AgentEvent)[0])) == set(EVENTS) - {events.Event}


def test_every_route_of_the_service_is_on_its_page() -> None:
    described = service_app.create_app("sqlite:///:memory:", base_url="https://a.example").openapi()["paths"]
    page = prose(DOCS / "operate/service.md")
    for path, methods in described.items():
        assert [method for method in methods if f"`{method.upper()} {path}`" not in page] == [], path


ERRORS = [getattr(errors, name) for name in public_names(errors)]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_its_row(error: type[BaseException]) -> None:
    row = row_of(error.__name__, DOCS / "reference/errors.md")
    attributes = set(re.findall(r"self\.(\w+) =", inspect.getsource(error)))
    assert attributes == set(re.findall(r"`(\w+)`", row.split("|")[3]))


def test_every_message_and_part_has_its_row() -> None:
    page = DOCS / "reference/messages.md"
    for name in public_names(messages):
        cls = getattr(messages, name)
        if name.endswith(("Message", "Part", "Delta")) and inspect.isclass(cls):
            row = row_of(name, page)
            kind = cls.model_fields.get("role", cls.model_fields.get("type"))
            assert name == "UnknownPart" or f"`{kind.default}`" in row


# Extras and dependencies.


def distribution(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0]


EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIREMENTS = [PROJECT["dependencies"], *EXTRAS.values(), GROUPS["dev"], BUILD]
DEPENDENCIES = sorted({distribution(each) for group in REQUIREMENTS for each in group} - {"askfirst"})


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_is_in_the_readme(extra: str) -> None:
    assert f"'askfirst[{extra}]'" in row_of(extra, ROOT / "README.md")


def test_the_readme_promises_no_other_extra() -> None:
    named = re.findall(r"askfirst\[(\w+)\]", "".join(page.read_text() for page in PAGES))
    assert set(named) <= set(EXTRAS)


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_every_dependency_has_its_reason(name: str) -> None:
    page = (DOCS / "project/dependencies.md").read_text()
    assert re.search(rf"^\|[^\n]*`{re.escape(name)}`[^\n]*\|\s*\w", page, re.MULTILINE)


def test_no_reason_is_given_for_what_is_not_there() -> None:
    rows = re.findall(r"^\|(.*)\|[^|\n]*\|$", (DOCS / "project/dependencies.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert named <= {*DEPENDENCIES, *EXTRAS}


# Links.

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def test_every_page_is_in_the_index() -> None:
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"} <= linked


# Security: each defence names tests that are there.

DEFENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions_in(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)}


def defences() -> Iterator[tuple[str, str]]:
    """The rows of the tables of defences: what is said, and the cell with its tests."""
    for table in (DOCS / "operate/security.md").read_text().split("| defence | tests |")[1:]:
        for row in table.partition("\n\n")[0].strip().splitlines()[1:]:
            said, tests = row.strip("| ").split(" | ")
            yield said, tests


@pytest.mark.parametrize(("said", "tests"), list(defences()))
def test_every_defence_has_its_tests(said: str, tests: str) -> None:
    named = DEFENCE.findall(tests)
    assert named
    assert DEFENCE.sub("", tests).strip(", ") == ""
    for path, name in named:
        assert name.startswith("test_")
        assert name in functions_in(ROOT / path), f"{path} has no {name}"


def test_there_are_defences() -> None:
    assert len(list(defences())) > 30


# Translations.


def in_code_type(page: Path) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", prose(page)))


@pytest.mark.parametrize("page", TRANSLATED, ids=named)
def test_a_translation_says_as_much_as_the_original(page: Path) -> None:
    original = DOCS / page.relative_to(DOCS / "zh")
    assert in_code_type(page) == in_code_type(original)
    assert [line.split(" ")[0] for line in prose(page).splitlines() if line.startswith("#")] == [
        line.split(" ")[0] for line in prose(original).splitlines() if line.startswith("#")
    ]
    assert [block.info for block in blocks_of(page.read_text())] == [
        block.info for block in blocks_of(original.read_text())
    ]


def test_there_is_a_translation() -> None:
    assert [named(page) for page in TRANSLATED] == ["docs/zh/reference/hitl.md"]


# Version and changelog.


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"] == askfirst.__version__
