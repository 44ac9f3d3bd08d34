"""What `askfirst.permissions` offers, and what an agent does not load of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from askfirst import permissions


@pytest.mark.parametrize("name", permissions.__all__)
def test_every_export_is_there_and_documented(name: str) -> None:
    value = getattr(permissions, name)
    assert value is getattr(import_module(f"askfirst.permissions.{permissions._HOMES[name]}"), name)
    assert name == "Guardrail" or value.__doc__


def test_exports_are_complete_and_type_checkers_see_them() -> None:
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse(Path(permissions.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("askfirst."):
            home = (node.module or "").removeprefix("askfirst.permissions.")
            seen |= {alias.name: home for alias in node.names}
    assert seen.pop("exports") == "askfirst.lazy"
    assert seen == permissions._HOMES
    assert sorted(permissions.__all__) == permissions.__all__ == list(permissions._HOMES)
    assert set(permissions.__all__) <= set(dir(permissions))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Polcy'"):
        permissions.Polcy  # noqa: B018


def test_the_parts_that_an_agent_uses_load_no_rules() -> None:
    code = "import sys; import askfirst.permissions.evaluate, askfirst.permissions.guardrails; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    loaded = set(done.stdout.split())
    assert "askfirst.permissions.decision" in loaded
    assert not loaded & {"askfirst.permissions.static", "askfirst.permissions.policy_file", "tomllib", "yaml"}


def test_rules_load_no_yaml() -> None:
    code = "import sys; from askfirst.permissions import StaticPermissionPolicy; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "False\n"
