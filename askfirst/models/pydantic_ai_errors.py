"""Exceptions of pydantic-ai and of the providers' SDKs as `ModelError`. Imports pydantic-ai: load it lazily."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import Model

from askfirst.errors import ModelError

_TRANSIENT = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
)
_PERMANENT = (ModelQuotaExceededError, ModelRequestRejectedError, ContentFilterError)
_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
_TRANSPORT_ERRORS = frozenset({"TransportError", "StreamError", "APIConnectionError"})
"""The exceptions of httpx, httpx2 and the SDKs for a broken connection; by name, because none of these libraries may
be imported here."""

_LONGEST = 300
_KEYS = re.compile(r"\b(?:sk|pk|xai|gsk|AIza)[-_]?[\w*-]{8,}|(?<=Bearer )\S+|(?<=[?&]key=)[^&\s]+")


def model_error(error: Exception, model: Model) -> ModelError:
    """The `ModelError` for an exception of a call to ``model``: one sentence, without the API key."""
    if isinstance(error, ExceptionGroup):
        return _group_error(cast("ExceptionGroup[Exception]", error), model)
    return ModelError(
        _one_sentence(_explain(error), model),
        retryable=_is_retryable(error),
        retry_after=error.retry_after if isinstance(error, ModelAPIError) else None,
        status=error.status_code if isinstance(error, ModelHTTPError) else None,
    )


def _group_error(group: ExceptionGroup[Exception], model: Model) -> ModelError:
    """The failures of a fallback model's models as one error: retryable if one of the failures is."""
    errors = [model_error(error, model) for error in group.exceptions]
    waits = [error.retry_after for error in errors if error.retryable and error.retry_after]
    return ModelError(
        _one_sentence("every model failed: " + "; ".join(str(error) for error in errors), model),
        retryable=any(error.retryable for error in errors),
        retry_after=min(waits, default=None),
    )


def _is_retryable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ModelHTTPError) and error.provider_retry_hint is not None:
        return error.provider_retry_hint
    if isinstance(error, _PERMANENT):
        return False
    if isinstance(error, _TRANSIENT):
        return True
    if isinstance(error, ModelHTTPError):
        return error.status_code in _TRANSIENT_STATUSES or error.status_code >= 500
    # The remaining errors of these two types have no known cause: an error event in a stream, or an answer that is
    # not JSON or ends too early. A second attempt often succeeds.
    return isinstance(error, ModelAPIError | UnexpectedModelBehavior) or _is_transport(error)


def _is_transport(error: Exception) -> bool:
    """Whether an error is a broken connection that pydantic-ai did not turn into its own exception."""
    named = any(kind.__name__ in _TRANSPORT_ERRORS for kind in type(error).__mro__)
    return named or isinstance(error, ConnectionError | TimeoutError)


def _explain(error: Exception) -> str:
    match error:
        case ModelAuthenticationError():
            status = f" with status {error.status_code}" if isinstance(error, ModelHTTPError) else ""
            return f"the provider refused the credentials{status}"
        case ModelHTTPError():
            said = _provider_message(error.body)
            return f"the provider answered with status {error.status_code}" + (f": {said}" if said else "")
        case ModelTimeoutError() | ModelRequestTimeout() | TimeoutError():
            return "the provider did not answer in time"
        case ModelConnectionError():
            return f"the connection to the provider failed: {error.message}"
        case ContentFilterError():
            return "the provider's content filter stopped the answer"
        case ModelAPIError() | UnexpectedModelBehavior():
            return f"the provider's answer cannot be used: {error.message}"
        case _ if _is_transport(error):
            return f"the connection to the provider failed: {error or type(error).__name__}"
        case _:
            return f"the model could not be asked: {error or type(error).__name__}"


def _provider_message(body: object) -> str:
    """The provider's error message, from the fields that providers use for it; empty if there is none."""
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, Any]", body)
        inner = fields.get("error", fields.get("message", ""))
        return _provider_message(inner)
    return body if isinstance(body, str) else ""


def _one_sentence(text: str, model: Model) -> str:
    for key in _api_keys(model):
        text = text.replace(key, "***")
    text = " ".join(_KEYS.sub("***", text).split()).rstrip(".")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _api_keys(model: Model) -> list[str]:
    """The API keys of the provider's client, from the attributes that SDKs commonly use."""
    client = getattr(model.provider, "client", None)
    keys: list[object] = [getattr(client, name, None) for name in ("api_key", "auth_token")]
    return [key for key in keys if isinstance(key, str) and key]
