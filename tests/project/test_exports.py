"""What `import askfirst` offers, and what it does not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, resources
from pathlib import Path

import pytest

import askfirst
from askfirst import models

PACKAGE = Path(askfirst.__file__).parent


def modules_after(statement: str) -> set[str]:
    """The modules of a fresh interpreter that ran a statement, less those that it starts with."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    return set(done.stdout.split())


@pytest.mark.parametrize("name", askfirst.__all__)
def test_every_export_is_there_and_documented(name: str) -> None:
    value = getattr(askfirst, name)
    assert value is getattr(import_module(f"askfirst.{askfirst._HOMES[name]}"), name)
    assert name == "AgentEvent" or value.__doc__


def test_exports_are_complete() -> None:
    assert list(askfirst._HOMES) == askfirst.__all__
    assert sorted(askfirst.__all__, key=lambda name: (name.islower(), name)) == askfirst.__all__
    assert set(askfirst.__all__) <= set(dir(askfirst))


def test_type_checkers_see_the_same_exports() -> None:
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("askfirst."):
            seen |= {alias.name: node.module.removeprefix("askfirst.") for alias in node.names}
    assert seen.pop("exports") == "lazy"
    assert seen == askfirst._HOMES


def test_models_exports_are_there() -> None:
    assert all(getattr(models, name).__doc__ for name in models.__all__)
    assert sorted(models.__all__) == models.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'askfirst' has no attribute 'Agnet'"):
        askfirst.Agnet  # noqa: B018


def test_import_askfirst_loads_nothing_else() -> None:
    loaded = modules_after("import askfirst")
    assert "askfirst" in loaded
    assert [name for name in loaded if name.startswith("askfirst.")] == ["askfirst.lazy"]
    assert not loaded & {"asyncio", "pydantic", "pydantic_core", "rich", "pydantic_ai", "typing_extensions"}


def test_using_the_core_loads_no_extra() -> None:
    names = ", ".join(name for name in askfirst.__all__ if name not in ("HitlClient", "create_app"))
    loaded = modules_after(f"from askfirst import {names}; from askfirst.models import ScriptedModel")
    assert "pydantic" in loaded
    assert not loaded & {"rich", "pydantic_ai", "stamina", "openai", "anthropic"}
    assert not loaded & {"alembic", "asyncmy", "asyncpg", "opentelemetry", "sqlalchemy"}


def test_a_run_without_tracing_loads_no_open_telemetry() -> None:
    run = "asyncio.run(Agent(model=ScriptedModel(['Hi.'])).prompt('go'))"
    loaded = modules_after(
        f"import asyncio; from askfirst import Agent; from askfirst.models import ScriptedModel; {run}"
    )
    assert "askfirst.agent.loop" in loaded
    assert "opentelemetry" not in loaded


def test_the_package_is_typed() -> None:
    assert resources.files("askfirst").joinpath("py.typed").is_file()


def test_every_module_says_what_it_is() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_no_validator_is_built_before_it_is_needed() -> None:
    """Pydantic looks for its plugins when it builds the first one, and each takes its time."""
    assert "pydantic.plugin._loader" not in modules_after("from askfirst import Agent, tool")
    assert "pydantic.plugin._loader" in modules_after("from askfirst.messages import Usage; Usage()")
