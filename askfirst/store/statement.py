"""A statement: written once in SQLAlchemy Core, compiled once per dialect, run by the driver itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import (
    BindParameter,
    Column,
    CompoundSelect,
    Executable,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

T = TypeVar("T")
Params = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Values by name; a list of such for a statement to be run once for each."""

Transaction = Generator[tuple["Statement", Params], Any, T]
"""A transaction as a generator without I/O: what happens between BEGIN and COMMIT.

It yields statements with their parameters. For a statement that reads it receives the list of rows, for one
that writes the number of rows that were changed.
"""

_PREFIX = "p_"


class Form(NamedTuple):
    """A statement as one driver wants it."""

    sql: str
    arguments: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """From parameters by name to the driver's order."""
    reads: bool


class SealedPlaces(NamedTuple):
    """Where a statement meets columns that may be encrypted (see `encryption`), each with the column's name."""

    params: Mapping[str, str]
    """By the parameter's name."""
    columns: Mapping[int, str]
    """By the place in a row that it reads."""


class Statement:
    """One SQL statement for every dialect; ``expression`` may be a function of the dialect's name.

    ``sealed`` are the places in its rows whose columns may be encrypted, where they cannot be told from the
    statement: it is given as a function, or the column is within an expression.
    """

    __slots__ = ("_also_sealed", "_expression", "_forms", "_reads", "_sealed")

    def __init__(
        self,
        expression: Executable | Callable[[str], Executable],
        *,
        reads: bool = False,
        sealed: Mapping[int, str] | None = None,
    ) -> None:
        self._expression = expression
        self._reads = reads
        self._also_sealed = sealed or {}
        self._forms: dict[str, Form] = {}
        self._sealed: SealedPlaces | None = None

    @property
    def sealed(self) -> SealedPlaces:
        """The statement's parameters and result columns that may be encrypted."""
        if self._sealed is None:
            self._sealed = _sealed_places(self._expression, self._reads, self._also_sealed)
        return self._sealed

    def form(self, dialect: Dialect) -> Form:
        """The statement for a dialect, compiled at its first use."""
        form = self._forms.get(dialect.name)
        if form is None:
            form = self._forms[dialect.name] = self._compile(dialect)
        return form

    def _compile(self, dialect: Dialect) -> Form:
        expression = self._expression
        if not isinstance(expression, Executable):
            expression = expression(dialect.name)
        compiled: Any = expression.compile(dialect=dialect)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(compiled, SQLCompiler):
            raise TypeError("a statement is a query, an insert, an update or a delete")
        names = [name.removeprefix(_PREFIX) for name in compiled.positiontup or ()]
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        return Form(str(compiled), _arguments(names, constants), self._reads or expression.is_select)

    @property
    def reads(self) -> bool:
        """Whether it gives rows."""
        return self._reads or getattr(self._expression, "is_select", False)


def _sealed_places(
    expression: Executable | Callable[[str], Executable], reads: bool, also: Mapping[int, str]
) -> SealedPlaces:
    if not isinstance(expression, Executable):
        if reads:
            return SealedPlaces({}, also)
        expression = expression("sqlite")  # what is written is the same in every dialect
    if isinstance(expression, (Insert, Update)):
        table = cast("Table", expression.table)
        return SealedPlaces({it.name: place_of(it) for it in table.columns if it.info.get("sealed")}, {})
    columns = dict(also)
    if isinstance(expression, (Select, CompoundSelect)):
        for place, selected in enumerate(cast("Sequence[Any]", expression.selected_columns)):  # pyright: ignore[reportUnknownMemberType]
            base: Column[Any] | None = next(iter(selected.base_columns), None)
            if isinstance(base, Column) and base.info.get("sealed"):
                columns[place] = place_of(base)
    return SealedPlaces({}, columns)


def place_of(column: Column[Any]) -> str:
    """A column's name, as `encryption` uses it: a value is bound to it. It lacks the prefix of the tables."""
    return f"{column.table.name.partition('_')[2]}.{column.name}"


def _arguments(
    names: Sequence[str], constants: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if constants:
        return lambda params: tuple(
            [constants[name] if name in constants else params[name] for name in names]
        )
    if len(names) > 1:
        return itemgetter(*names)
    return lambda params: tuple([params[name] for name in names])


def param(name: str, type_: TypeEngine[Any] | None = None) -> BindParameter[Any]:
    """A named parameter. Its SQLAlchemy name has a prefix, because SQLAlchemy reserves the names of columns."""
    return bindparam(_PREFIX + name, type_=type_)


def upsert(table: Table, *, update: Sequence[str]) -> Statement:
    """Insert a row, or set these columns of the one that has its key already."""
    key = [column.name for column in table.primary_key]

    def build(dialect: str) -> Executable:
        fresh = {name: param(name, table.c[name].type) for name in update}
        if dialect == "mysql":
            return mysql.insert(table).on_duplicate_key_update(fresh)
        flavour = postgresql.insert if dialect == "postgresql" else sqlite.insert
        return flavour(table).on_conflict_do_update(index_elements=key, set_=fresh)

    return Statement(build)


WAKE = Statement(text("-- wake"))
"""Not SQL: ``yield WAKE, {"thread_id": ..., "question_id": ...}`` notifies the waiters of a request.

The engine sends the wake-up after the commit, to every process.
"""


def woken(params: Params) -> tuple[str, str]:
    """The request (thread id, question id) whose waiters a `WAKE` is for."""
    values = cast("Mapping[str, str]", params)
    return values["thread_id"], values["question_id"]


class Foreseen(NamedTuple):
    """A transaction's writes and its result, assuming that each statement that writes changes exactly one row."""

    parts: list[tuple[Statement, Mapping[str, Any]]]
    wakes: list[tuple[str, str]]
    result: Any
