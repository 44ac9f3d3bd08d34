"""The package (the house) in figures: lengths of files and functions, import cycles, and three walks through its
modules.

A module is called a room. ``--check`` prints nothing unless a limit is broken: on the length of files and functions,
on import cycles, on context variables. The number of files has no limit, because new capabilities bring new modules.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "askfirst"
FILE_LINES, FUNCTION_LINES, CONTEXT_VARIABLES, FIELDS = 600, 60, 3, 12
MAY_BE_LONGER = {"askfirst.errors"}
"""Modules without a limit. The whole exception tree stays in one file, drawn at its top, to be found in one place."""


@dataclass(frozen=True)
class Room:
    """A module: its name, its file, its number of lines and its syntax tree."""

    name: str
    path: Path
    lines: int
    tree: ast.Module


def rooms() -> list[Room]:
    """Every module except the migrations, which are frozen."""
    found: list[Room] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "migrations" in path.parts:
            continue
        text = path.read_text()
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found.append(Room(name, path, len(text.splitlines()), ast.parse(text)))
    return found


def functions(room: Room) -> Iterator[tuple[int, str]]:
    """The functions of a room with their lengths, without docstrings; inner functions count separately."""
    for node in ast.walk(room.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            not_counted = [*_inner_functions(node), *_docstring(node)]
            yield _length(node) - sum(map(_length, not_counted)), f"{room.name}.{node.name}"


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return node.body[:1] if ast.get_docstring(node) is not None else []


def _inner_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _inner_functions(child)


def imported_at_once(room: Room, known: set[str]) -> set[str]:
    """The rooms that this one imports at import time: not inside functions, and not only for type checkers."""
    found: set[str] = set()
    for node in _at_run_time(room.tree.body):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return (found & known) - {room.name}


def _at_run_time(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module that run when it is imported, without those for type checkers only."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _at_run_time(node.body)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The import cycles: groups of rooms that import one another."""
    found: list[list[str]] = []
    seen: set[str] = set()
    reach = {name: _reachable(name, graph) for name in graph}
    for name in graph:
        cycle = sorted(other for other in reach[name] if name in reach.get(other, ()))
        if cycle and name not in seen:
            seen.update(cycle)
            found.append(cycle)
    return found


def _reachable(name: str, graph: dict[str, set[str]]) -> set[str]:
    """All rooms that a room imports, directly or through others."""
    reached: set[str] = set()
    left = list(graph[name])
    while left:
        at = left.pop()
        if at not in reached:
            reached.add(at)
            left += graph.get(at, ())
    return reached


def context_variables(room: Room) -> list[str]:
    return [
        room.name
        for node in ast.walk(room.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ContextVar"
    ]


def fields(room: Room) -> Iterator[tuple[int, str]]:
    """The classes of a room with their numbers of fields: declared, or set by any of their methods."""
    for node in ast.walk(room.tree):
        if isinstance(node, ast.ClassDef):
            names = {
                it.target.id
                for it in node.body
                if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name)
            }
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    names |= {
                        it.attr
                        for it in ast.walk(method)
                        if isinstance(it, ast.Attribute)
                        and isinstance(it.ctx, ast.Store)
                        and isinstance(it.value, ast.Name)
                        and it.value.id == "self"
                    }
            yield len(names), f"{room.name}.{node.name}"


def broken(house: list[Room]) -> list[str]:
    """A sentence for each broken limit."""
    known = {room.name for room in house}
    graph = {room.name: imported_at_once(room, known) for room in house}
    said = [
        f"{it.name} has {it.lines} lines, {FILE_LINES} at most"
        for it in house
        if it.lines > FILE_LINES and it.name not in MAY_BE_LONGER
    ]
    for room in house:
        said += [
            f"{name} has {length} lines, {FUNCTION_LINES} at most"
            for length, name in functions(room)
            if length > FUNCTION_LINES
        ]
    said += [f"these modules form an import cycle: {', '.join(cycle)}" for cycle in cycles(graph)]
    variables = [name for room in house for name in context_variables(room)]
    if len(variables) > CONTEXT_VARIABLES:
        said.append(
            f"{len(variables)} context variables, {CONTEXT_VARIABLES} at most: in {', '.join(variables)}"
        )
    return said


def describe(house: list[Room]) -> None:
    known = {room.name for room in house}
    lengths = sorted(room.lines for room in house)
    largest = max(house, key=lambda room: room.lines)
    longest = max(it for room in house for it in functions(room))
    many = sorted((it for room in house for it in fields(room) if it[0] > FIELDS), reverse=True)
    variables = [name for room in house for name in context_variables(room)]
    found_cycles = cycles({room.name: imported_at_once(room, known) for room in house})
    print(f"files               {len(house)}, {sum(lengths)} lines")
    print(f"  median, p90       {statistics.median(lengths):.0f}, {lengths[len(lengths) * 9 // 10]} lines")
    print(f"  largest           {largest.lines} lines: {largest.name}")
    print(f"longest function    {longest[0]} lines: {longest[1]}")
    print(f"import cycles       {len(found_cycles)}")
    print(f"context variables   {len(variables)}: {', '.join(variables)}")
    print(f"over {FIELDS} fields      {len(many)}: {', '.join(f'{name} {count}' for count, name in many)}")


def main(arguments: list[str]) -> int:
    if unknown := set(arguments) - {"--check", "--rooms"}:
        print(f"no such option: {', '.join(sorted(unknown))}; there are --check and --rooms", file=sys.stderr)
        return 2
    house = rooms()
    problems = broken(house)
    if "--check" not in arguments:
        describe(house)
        from walks import walk_all

        walk_all(show="--rooms" in arguments)
    for problem in problems:
        print(f"house: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
