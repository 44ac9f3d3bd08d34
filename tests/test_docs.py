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

import assent
from assent import errors, events, messages, models

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


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
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    }


@pages
def test_blocks_that_do_not_run_need_a_network_and_are_valid(page: Path) -> None:
    for block in blocks_of(page.read_text()):
        if block.info == "python no-run":
            compiled(block, page)
            assert "PydanticAIModel" in block.text


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
    block, promised = next(examples(readme))
    assert "Save this as `agent.py`" in readme
    assert "`python agent.py` prints:" in readme
    (tmp_path / "agent.py").write_text(block.text)
    done = subprocess.run(
        [sys.executable, "agent.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (promised, "", 0)


def test_the_readme_agent_has_fifteen_lines_and_is_an_example() -> None:
    block, _ = next(examples((ROOT / "README.md").read_text()))
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


ALL_NAMES = sorted(
    {
        *assent.__all__,
        *models.__all__,
        *(name for m in (errors, events, messages) for name in public_names(m)),
    }
)


def mentioned(name: str, text: str) -> bool:
    """Whether a name stands in code type: alone, or with something behind it."""
    return re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", text) is not None


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_public_name_is_documented(name: str) -> None:
    assert any(mentioned(name, prose(page)) for page in DOCS.glob("*.md"))


def test_public_names_are_found() -> None:
    assert {"encode", "Message", "StopReason", "Usage"} <= set(public_names(messages))
    assert "BaseModel" not in public_names(messages)


def fields_of(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init and not field.name.startswith("_")]


def parameters_of(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def members_of(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


MEMBERS = {
    "agent.md": [
        *parameters_of(assent.Agent.__init__),
        *members_of(assent.Agent),
        *fields_of(assent.AgentSpec),
        *fields_of(assent.AgentResult),
    ],
    "tools.md": [
        *fields_of(assent.Tool),
        *fields_of(assent.ToolContext),
        *members_of(assent.ToolContext),
        *fields_of(assent.ToolResult),
    ],
    "middleware.md": [
        *members_of(assent.Middleware),
        *fields_of(assent.BeforeToolCallResult),
        *fields_of(assent.ToolCallContext),
        *fields_of(assent.ModelCallContext),
    ],
    "models.md": [
        *fields_of(models.ModelSettings),
        *fields_of(models.ModelRequest),
        *fields_of(models.ToolSchema),
        *members_of(models.Model),
        *parameters_of(models.PydanticAIModel.__init__)[1:],
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
    row = row_of(event.__name__, DOCS / "events.md")
    assert f"`{event.model_fields['type'].default}`" in row
    own = set(event.model_fields) - set(events.Event.model_fields) - {"type"}
    assert own == set(re.findall(r"`(\w+)`", row.split("|")[3]))


def test_the_union_has_every_event() -> None:
    assert set(get_args(get_args(events.AgentEvent)[0])) == set(EVENTS) - {events.Event}


ERRORS = [getattr(errors, name) for name in public_names(errors)]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_its_row(error: type[BaseException]) -> None:
    row = row_of(error.__name__, DOCS / "errors.md")
    attributes = set(re.findall(r"self\.(\w+) =", inspect.getsource(error)))
    assert attributes == set(re.findall(r"`(\w+)`", row.split("|")[3]))


def test_every_message_and_part_has_its_row() -> None:
    page = DOCS / "messages.md"
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
DEPENDENCIES = sorted({distribution(each) for group in REQUIREMENTS for each in group} - {"assent"})


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_is_in_the_readme(extra: str) -> None:
    assert f"'assent[{extra}]'" in row_of(extra, ROOT / "README.md")


def test_the_readme_promises_no_other_extra() -> None:
    named = re.findall(r"assent\[(\w+)\]", "".join(page.read_text() for page in PAGES))
    assert set(named) <= set(EXTRAS)


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_every_dependency_has_its_reason(name: str) -> None:
    page = (DOCS / "dependencies.md").read_text()
    assert re.search(rf"^\|[^\n]*`{re.escape(name)}`[^\n]*\|\s*\w", page, re.MULTILINE)


def test_no_reason_is_given_for_what_is_not_there() -> None:
    rows = re.findall(r"^\|(.*)\|[^|\n]*\|$", (DOCS / "dependencies.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert named <= {*DEPENDENCIES, *EXTRAS}


# Links.

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
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
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked


# Version and changelog.


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"] == assent.__version__
