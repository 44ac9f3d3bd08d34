"""The schemas of request bodies in `/openapi.json`. Routes read bodies themselves, so FastAPI does not know them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

_REF = "#/components/schemas/{model}-Sent"


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """The ``openapi_extra`` of a route that reads a body of this model."""
    schema = model.model_json_schema(ref_template=_REF)
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application. Definitions within body schemas are moved to its components."""
    described = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas: dict[str, Any] = described.setdefault("components", {}).setdefault("schemas", {})
    for path in described["paths"].values():
        for operation in path.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                inner: dict[str, Any] = content["schema"].pop("$defs", {})
                schemas |= {f"{name}-Sent": schema for name, schema in inner.items()}
    return described
