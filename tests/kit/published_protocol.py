"""The protocol's published schemas and examples, if they are available, and documents modelled on them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from rfc3339_validator import validate_rfc3339
from rfc3986_validator import validate_rfc3986

from askfirst.protocol import (
    Callback,
    Discovery,
    ErrorBody,
    FormField,
    HitlObject,
    HumanInputRequired,
    InlineSubmitRejected,
    PollResponse,
    ReviewSubmission,
    SubmissionAccepted,
    SubmissionContext,
    SubmitRequest,
    VerificationPolicy,
    VerificationResult,
)
from askfirst.protocol.wire import Wire
from kit.paths import ROOT

PUBLISHED = ROOT.parent / "shared" / "hitl-protocol"
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="the protocol's published files are not here"
)

BASE = "https://hitl-protocol.org/schemas/v0.8/"
COMPONENT = "openapi.yaml#/components/schemas/"
SCHEMA_OF: dict[type[Wire], str] = {
    HitlObject: "hitl-object.json",
    FormField: "form-field.json",
    PollResponse: "poll-response.json",
    SubmitRequest: "submit-request.json",
    SubmissionContext: "submission-context.json",
    VerificationPolicy: "verification-policy.json",
    VerificationResult: "verification-result.json",
    Discovery: "discovery-response.json",
    HumanInputRequired: COMPONENT + "Http202Response",
    ReviewSubmission: COMPONENT + "ReviewSubmission",
    SubmissionAccepted: COMPONENT + "ReviewSubmissionResult",
    ErrorBody: COMPONENT + "Error",
    InlineSubmitRejected: "openapi.yaml#/components/responses/InlineSubmitRejected/content/application~1json/schema",
    Callback: "openapi.yaml#/webhooks/reviewCallback/post/requestBody/content/application~1json/schema",
}

formats = jsonschema.FormatChecker(formats=())
formats.checks("date-time")(lambda value: not isinstance(value, str) or validate_rfc3339(value.upper()))
formats.checks("uri")(lambda value: not isinstance(value, str) or bool(validate_rfc3986(value, rule="URI")))


@formats.checks("email")
def _is_email(value: object) -> bool:
    if not isinstance(value, str):
        return True
    name, _, host = value.partition("@")
    return bool(name and host) and "@" not in host and not any(letter.isspace() for letter in value)


@cache
def openapi() -> dict[str, Any]:
    text = (PUBLISHED / "schemas" / "openapi.yaml").read_text()
    # YAML reads times as dates; in JSON they are text.
    loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    loader.yaml_implicit_resolvers = {
        first: [(tag, regex) for tag, regex in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    document = yaml.load(text, loader)  # noqa: S506  (a SafeLoader)
    # The rules and the checklist call the message recommended; its absence must not stop an agent.
    document["components"]["schemas"]["Http202Response"]["required"].remove("message")
    return document


@cache
def registry() -> Registry[Any]:
    found: Registry[Any] = Registry().with_resource(
        BASE + "openapi.yaml", Resource(openapi(), specification=_SPECIFICATION)
    )
    for path in (PUBLISHED / "schemas").glob("*.schema.json"):
        resource = Resource.from_contents(json.loads(path.read_text()))
        found = found.with_resources([(resource.id() or "", resource), (BASE + path.name, resource)])
    return found


_SPECIFICATION = Resource.from_contents(
    {"$schema": "https://json-schema.org/draft/2020-12/schema"}
)._specification


@cache
def published_validator(model: type[Wire]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": BASE + SCHEMA_OF[model]}, registry=registry(), format_checker=formats
    )


@cache
def own_validator(model: type[Wire]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(model.model_json_schema(), format_checker=formats)


def example_documents() -> list[tuple[type[Wire], dict[str, Any]]]:
    """Every object in the published examples, each with its model."""
    if not PUBLISHED.is_dir():
        return []
    files = sorted((PUBLISHED / "examples").glob("*.json"))
    sources = [json.loads(file.read_text()) for file in files]
    described = [openapi()["paths"], openapi()["webhooks"], openapi()["components"]["responses"]]
    return [each for source in [*sources, *described] for each in _walk(source)]


def _walk(value: Any) -> Iterator[tuple[type[Wire], dict[str, Any]]]:
    if isinstance(value, dict):
        model = _model_of(value)
        if model:
            yield model, value
        for each in value.values():
            yield from _walk(each)
    elif isinstance(value, list):
        for each in value:
            yield from _walk(each)


def _model_of(value: dict[str, Any]) -> type[Wire] | None:
    by_key: list[tuple[set[str], type[Wire]]] = [
        ({"status", "hitl"}, HumanInputRequired),
        ({"spec_version", "case_id"}, HitlObject),
        ({"hitl_protocol"}, Discovery),
        ({"action", "submitted_via"}, SubmitRequest),
        ({"mode", "required_for"}, VerificationPolicy),
        ({"satisfied"}, VerificationResult),
        ({"error", "message", "case_id"}, InlineSubmitRejected),
        ({"error", "message"}, ErrorBody),
        ({"event", "case_id", "timestamp"}, Callback),
        ({"status", "case_id", "created_at"}, PollResponse),
        ({"status", "case_id", "completed_at"}, SubmissionAccepted),
    ]
    if not all(isinstance(key, str) for key in value) or "properties" in value or "required" in value:
        return None  # a schema
    if value.get("mode") in ("browser_submit", "inline_submit"):
        return SubmissionContext
    for keys, model in by_key:
        if keys <= value.keys() and all(not isinstance(value[key], dict) or key in _OBJECTS for key in keys):
            return model
    return None


_OBJECTS = {"hitl", "hitl_protocol"}

FIELD = {
    "key": "iban",
    "label": "Account",
    "type": "select",
    "required": True,
    "placeholder": "p",
    "hint": "h",
    "default": None,
    "default_ref": "https://a.example/prefill",
    "sensitive": True,
    "options": [{"value": "a", "label": "A"}],
    "validation": {"minLength": 1, "maxLength": 9, "pattern": "^a", "min": 1, "max": 2.5},
    "conditional": {"field": "other", "operator": "in", "value": [1, "a"]},
}
"""A field with every attribute that a field may have; the published examples have no form."""

FULL = {
    "spec_version": "0.8",
    "case_id": "review_1",
    "review_url": "https://a.example/review/1?token=t",
    "poll_url": "http://localhost:8000/poll",
    "type": "x-own",
    "prompt": "Fill this in",
    "timeout": "24h",
    "default_action": "skip",
    "created_at": "2026-02-22T10:00:00Z",
    "expires_at": "2026-02-23T10:00:00.25+02:00",
    "callback_url": "https://agent.example/hook",
    "events_url": "https://a.example/events",
    "context": {"anything": [1, None, {"a": True}], "form": {"fields": [FIELD], "session_id": "s"}},
    "reminder_at": ["2026-02-22T12:00:00Z"],
    "previous_case_id": "review_0",
    "surface": {"format": "f", "version": "1", "more": 1},
}
STEPS = {"steps": [{"title": "One", "description": "d", "fields": [FIELD]}, {"title": "Two", "fields": []}]}
POLL = {
    "status": "expired",
    "case_id": "review_1",
    "created_at": "2026-02-22T10:00:00Z",
    "expired_at": "2026-02-23T10:00:00Z",
    "default_action": "skip",
    "reminder_sent_at": "2026-02-22T12:00:00Z",
    "progress": {"current_step": 1, "total_steps": 2, "completed_fields": 0, "total_fields": 3},
    "result": {
        "action": "submit",
        "signature": {
            "algorithm": "ES256",
            "value": "v",
            "signed_at": "2026-02-22T12:00:00Z",
            "signer": "https://a.example/jwks.json",
        },
    },
}
POLICY = {
    "mode": "required",
    "required_for": ["inline_submit", "browser_submit"],
    "requirements": {
        "any_of": [{"all_of": [{"proof_type": "x-badge", "presentation_formats": ["zkp", "x-own"]}]}]
    },
    "binding": {"case_id": True, "action": False, "freshness_seconds": 60, "single_use": True},
    "fallback": {"on_missing": "reject", "on_invalid": "browser_review"},
}
EVIDENCE = {
    "action": "confirm",
    "submitted_via": "x-pager",
    "submitted_by": {"platform": "x-pager", "platform_user_id": "7"},
    "verification_evidence": [
        {
            "proof_type": "x-badge",
            "provider": "p",
            "format": "jwt",
            "presentation": {"proof": "secret"},
            "binding": {"case_id": "c", "more": 1},
        }
    ],
}


def documents() -> list[tuple[type[Wire], dict[str, Any]]]:
    """The published objects, and our own with the features that those lack."""
    stepped = copy.deepcopy(FULL)
    stepped["context"]["form"] = STEPS  # type: ignore[index]
    own: list[tuple[type[Wire], dict[str, Any]]] = [
        (FormField, FIELD),
        (HitlObject, FULL),
        (HitlObject, stepped),
        (PollResponse, POLL),
        (PollResponse, {"status": "cancelled", "case_id": "c", "cancelled_at": "2026-02-22T12:00:00Z"}),
        (SubmitRequest, EVIDENCE),
        (VerificationPolicy, POLICY),
        (ReviewSubmission, {"action": "approve", "data": {"feedback": "ok"}}),
    ]
    return [*example_documents(), *own]
