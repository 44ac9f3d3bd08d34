"""Policies that Askfirst ships, to start from: each a file of rules beside this module."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path

from askfirst.errors import InvalidPolicy
from askfirst.permissions.policy_file import policy_in_text
from askfirst.permissions.static import StaticPermissionPolicy

SHIPPED = {"coding-agent": "coding_agent.yaml"}
"""The file of each shipped policy, by the name that it is referred to with."""
_REPOSITORY, _DIRECTORY = '"${repository}"', '"${working_directory}"'
Folder = str | os.PathLike[str] | None


def shipped_text(name: str, repository: Folder = None, working_directory: Folder = None) -> str:
    """The text of a shipped policy, in YAML, for a repository: a folder, by default the working directory.

    Relative paths start at ``working_directory``, by default the repository. Raises `InvalidPolicy` for a name that
    there is not.
    """
    if name not in SHIPPED:
        known = ", ".join(SHIPPED)
        raise InvalidPolicy([f"there is no shipped policy {name!r}; there is {known}"])
    text = files("askfirst.permissions").joinpath("policies", SHIPPED[name]).read_text("utf-8")
    folder = Path.cwd() if repository is None else Path(repository).absolute()
    start = folder if working_directory is None else folder / working_directory
    return text.replace(_REPOSITORY, json.dumps(str(folder))).replace(_DIRECTORY, json.dumps(str(start)))


def shipped_policy(
    name: str, repository: Folder = None, working_directory: Folder = None
) -> StaticPermissionPolicy:
    """A shipped policy for a repository: ``shipped_policy("coding-agent", "/srv/project")``; see `shipped_text`."""
    rules, default = policy_in_text(shipped_text(name, repository, working_directory), SHIPPED[name])
    return StaticPermissionPolicy(rules, default)


def policy_from(
    named: str | os.PathLike[str], repository: Folder = None, working_directory: Folder = None
) -> StaticPermissionPolicy:
    """The policy that a command was given: the name of a shipped one, or the path of a file of rules.

    The folders are for a shipped one; see `shipped_text`.
    """
    if isinstance(named, str) and named in SHIPPED:
        return shipped_policy(named, repository, working_directory)
    return StaticPermissionPolicy.from_file(named)
