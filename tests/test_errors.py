"""Every error, and the marker `DEFAULT`, can be copied and sent to another process."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from askfirst import errors
from askfirst.channels import DEFAULT
from askfirst.errors import AskfirstError, HitlControlException

# What the constructors take, by the parameter's name, where a text will not do.
EXAMPLES: dict[str, Any] = {
    "problems": ["one", "two"],
    "lines": [3, 4],
    "retryable": True,
    "retry_after": 1.5,
    "status": 503,
    "turns": 2,
    "until": 1_000,
    "fence": 7,
    "claimed_until": 1_000,
    "http_status": 404,
    "permanent": True,
    "seconds": 2.5,
    "omitted": 3,
    "wait": 5_000,
}
ONE_BY_ONE = ("HitlInvalidAnswer", "InvalidSkill")


def tree(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    yield cls
    for each in cls.__subclasses__():
        yield from tree(each)


CLASSES = sorted({*tree(AskfirstError), *tree(HitlControlException)}, key=lambda cls: cls.__name__)
OURS = [cls for cls in CLASSES if cls.__module__ == errors.__name__]


def example(cls: type[BaseException]) -> BaseException:
    """One with a fact for each parameter, optional ones too."""
    if "__init__" not in {
        name for each in cls.__mro__ if each.__module__ == errors.__name__ for name in vars(each)
    }:
        return cls("it went wrong")
    given: dict[str, Any] = {}
    for name in inspect.signature(cls).parameters:
        if name == "faults":
            listed = cls.__name__ in ONE_BY_ONE
            given[name] = ["a: no", "b: no"] if listed else {"a": "is not a number", "": "is missing"}
        else:
            given[name] = EXAMPLES.get(name, f"the {name}")
    return cls(**given)


def sent(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))  # noqa: S301  (its own)


def sent_in_the_oldest_form(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error, protocol=0))  # noqa: S301  (its own)


WAYS = [copy.copy, copy.deepcopy, sent, sent_in_the_oldest_form]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def assert_same(again: BaseException, error: BaseException) -> None:
    assert again is not error
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert repr(again) == repr(error)
    assert again.args == error.args
    assert vars(again) == vars(error)


def test_the_tree_is_walked() -> None:
    drawn = {name for name in vars(errors) if inspect.isclass(getattr(errors, name)) and name[0] != "_"}
    here = {cls.__name__ for cls in OURS}
    assert here == {name for name in drawn if issubclass(getattr(errors, name), BaseException)}
    assert len(OURS) > 40


def test_the_drawing_at_the_top_is_the_tree() -> None:
    drawn: dict[str, str | None] = {}
    above: list[str] = []
    for prefix, name in re.findall(
        r"^((?:[│ ]   |[├└]── )*)(\w+)  ", inspect.cleandoc(errors.__doc__ or ""), re.M
    ):
        above[len(prefix) // 4 - 1 :] = [name]
        drawn[name] = above[-2] if len(above) > 1 else None
    roots = {"AskfirstError", "HitlControlException"}
    assert drawn == {
        cls.__name__: None if cls.__name__ in roots else cls.__bases__[0].__name__ for cls in OURS
    }


@ways
@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_error_comes_back_as_it_was(cls: type[BaseException], way: Callable[[Any], Any]) -> None:
    error = example(cls)
    assert_same(way(error), error)


@ways
def test_what_built_in_classes_keep_comes_back_too(way: Callable[[Any], Any]) -> None:
    error = errors.MissingExtra("tracing", "tracing")
    error.name = "opentelemetry"
    again = way(error)
    assert_same(again, error)
    assert (again.msg, again.name) == (str(error), "opentelemetry")


@ways
def test_notes_and_later_attributes_come_back_too(way: Callable[[Any], Any]) -> None:
    error = errors.HitlInvalidAnswer("q", ["a: no"])
    error.add_note("seen at the desk")
    error.seen = 3  # pyright: ignore[reportAttributeAccessIssue]
    again = way(error)
    assert_same(again, error)
    assert again.__notes__ == ["seen at the desk"]


def test_a_deep_copy_shares_nothing_that_can_change() -> None:
    error = errors.InvalidReview({"a": "is missing"})
    copy.deepcopy(error).faults["b"] = "x"
    assert error.faults == {"a": "is missing"}


class Mine(errors.HitlError):
    """One that a user of the library made, of another shape."""

    def __init__(self, first: int, *, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.first = first
        self.second = second


@ways
def test_a_class_of_ones_own_is_no_exception(way: Callable[[Any], Any]) -> None:
    error = Mine(1, second="two")
    assert_same(way(error), error)


@ways
def test_the_default_stays_itself(way: Callable[[Any], Any]) -> None:
    assert way(DEFAULT) is DEFAULT
    assert way({"timeout": DEFAULT})["timeout"] is DEFAULT
    assert repr(DEFAULT) == "DEFAULT"
