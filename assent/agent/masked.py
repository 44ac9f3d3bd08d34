"""Arguments that a person is not shown: an edit that gives them back as they were shown leaves them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

from assent.messages import JsonObject


def unmasked(args: BaseModel, shown: JsonObject, edited: Mapping[str, Any]) -> Mapping[str, Any]:
    """Edited arguments, with what was masked or left out when ``args`` were ``shown``."""
    if not isinstance(edited, Mapping):  # a middleware's mistake, which whoever reads them will name
        return edited
    whole = dict(edited)
    for name, field in type(args).model_fields.items():
        value = getattr(args, name)
        kept = name in whole and whole[name] == shown.get(name) and isinstance(value, SecretStr | SecretBytes)
        if kept or (field.exclude and name not in whole and name not in shown):
            whole[name] = value
    return whole
