"""Objects of earlier versions of the protocol, read as those of this one."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import from_json

from assent.protocol.discovery import Discovery
from assent.protocol.hitl import SPEC_VERSION, HumanInputRequired

READABLE_VERSIONS = ("0.5", "0.6", "0.7", SPEC_VERSION)
"""From 0.5 on, versions only added fields; what is there means the same."""


def read_202(data: bytes | str | Mapping[str, Any]) -> HumanInputRequired:
    """The body of a 202, of any readable version, as one of this version.

    Raises `InvalidProtocolObject`: also for a field that this version does not know, whatever it meant then.
    """
    return HumanInputRequired.read(_raised(data, "hitl"))


def read_discovery(data: bytes | str | Mapping[str, Any]) -> Discovery:
    """A discovery document, of any readable version, as one of this version; see `read_202`."""
    return Discovery.read(_raised(data, "hitl_protocol"))


def _raised(data: bytes | str | Mapping[str, Any], name: str) -> bytes | str | Mapping[str, Any]:
    """The same with this version's number inside; what is not as expected is left for the reader to refuse."""
    if isinstance(data, bytes | str):
        try:
            data = cast("Mapping[str, Any]", from_json(data, allow_inf_nan=False))
        except ValueError:
            return data
    inner = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(inner, Mapping):
        return data
    facts = cast("Mapping[str, Any]", inner)
    if facts.get("spec_version") not in READABLE_VERSIONS:
        return data
    return {**data, name: {**facts, "spec_version": SPEC_VERSION}}
