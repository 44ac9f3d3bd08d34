"""Lazy public names: a package loads the module of a name when the name is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(
    package: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package, from its ``globals()`` and the module of each name."""
    package_name: str = package["__name__"]

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package_name!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(f"{package_name}.{homes[name]}"), name)
        return value

    def names() -> list[str]:
        return sorted({*package, *homes})

    return load, names
