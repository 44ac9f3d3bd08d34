"""PydanticAIModel: every model that pydantic-ai supports, as an Askfirst model.

This module calls the model, streams its answer and retries. ``pydantic_ai_request``, ``pydantic_ai_response`` and
``pydantic_ai_errors`` translate requests, answers and exceptions. All of them need the ``models`` extra, which is
imported only when the first `PydanticAIModel` is made.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from askfirst.errors import MissingExtra, ModelError
from askfirst.messages import AssistantMessage, Delta, RestartDelta
from askfirst.models.base import ModelRequest

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

WAIT_INITIAL = 0.5
"""Seconds before the second attempt; doubled before each later attempt."""
WAIT_MAX = 30.0
"""The longest back-off between two attempts, in seconds."""
WAIT_JITTER = 1.0
"""Up to this many seconds are added to a back-off at random."""
RETRY_AFTER_MAX = 60.0
"""If a provider asks for a longer wait than this, in seconds, there is no retry: the caller gets the error."""


class PydanticAIModel:
    """A model by its pydantic-ai name (``"anthropic:claude-sonnet-5"``), or a pydantic-ai model object.

    Transient failures (rate limits, overload, broken connections) are retried, up to ``attempts`` attempts in all,
    with exponential back-off or after the time that the provider asks for. The retries of the provider's SDK are
    switched off; ``ModelSettings(extra={"max_retries": 2})`` switches them on.

    Each call opens its own connections and closes them, so that no connection outlives its event loop. Enter the
    model (``async with model:``) to keep connections open between calls, and so to set up TLS only once.

    Raises `MissingExtra` without the ``models`` extra, an ``ImportError`` that names what to install if the
    provider's SDK is missing, and `ModelError` for an unknown name or a missing API key.
    """

    def __init__(self, model: str | PydanticModel, *, attempts: int = 5) -> None:
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {attempts}")
        self._model = _load_model(model)
        self._name = model if isinstance(model, str) else model.model_id
        self._attempts = attempts

    @property
    def name(self) -> str:
        """The name that was given, or the model object's own name."""
        return self._name

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._model.__aexit__(*error)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | AssistantMessage]:
        """Ask the model: yields deltas as they arrive, then the whole message.

        A `RestartDelta` comes between two attempts if the first one had already yielded deltas.
        """
        import stamina

        broken: ModelError | None = None
        async with self._model:
            async for attempt in stamina.retry_context(
                on=_retry_delay,
                attempts=self._attempts,
                timeout=None,
                wait_initial=WAIT_INITIAL,
                wait_max=WAIT_MAX,
                wait_jitter=WAIT_JITTER,
            ):
                if broken is not None:
                    yield RestartDelta(reason=str(broken))
                    broken = None
                has_yielded = False
                try:
                    async with aclosing(self._ask(request)) as answer:
                        async for item in answer:
                            yield item
                            has_yielded = True
                    return
                except ModelError as error:
                    broken = error if has_yielded else None
                    with attempt:  # stamina sees only failures, never a cancellation
                        raise

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[Delta | AssistantMessage]:
        """Ask once, without a retry. Every failure is raised as a `ModelError`."""
        from pydantic_ai.direct import model_request_stream

        from askfirst.models.pydantic_ai_errors import model_error
        from askfirst.models.pydantic_ai_request import parameters_for, settings_for, to_pydantic_ai
        from askfirst.models.pydantic_ai_response import DeltaReader, from_pydantic_ai

        try:
            asked = model_request_stream(
                self._model,
                to_pydantic_ai(request.messages),
                model_settings=settings_for(self._model, request.settings),
                model_request_parameters=parameters_for(request),
            )
            reader = DeltaReader()
            async with asked as response:
                async for event in response:
                    delta = reader.read(event)
                    if delta is not None:
                        yield delta
                message = from_pydantic_ai(response.get())
        except ModelError:
            raise
        except Exception as error:  # the SDKs raise errors of many types
            raise model_error(error, self._model) from error
        yield message


def _load_model(model: str | PydanticModel) -> PydanticModel:
    try:
        import_module("stamina")  # used at the first call, but its absence is reported now
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"pydantic_ai", "stamina"}:
            raise MissingExtra("PydanticAIModel", "models") from error
        raise
    try:
        return infer_model(model)
    except UserError as error:
        raise ModelError(_unusable(model, str(error))) from error


def _unusable(model: str | PydanticModel, why: str) -> str:
    """Why a model cannot be used; if its API key is missing, the variable to set."""
    variable = re.search(r"[Ss]et the `(\w+_(?:API_)?(?:KEY|TOKEN))` environment variable", why)
    if variable is None or not isinstance(model, str):
        return why
    return f"the model {model!r} needs an API key: set the environment variable {variable[1]}"


def _retry_delay(error: Exception) -> bool | float:
    """For stamina: whether to retry after this error; or the seconds to wait before, if the provider asked for a
    wait."""
    if not isinstance(error, ModelError) or not error.retryable:
        return False
    if not error.retry_after:
        return True
    if error.retry_after > RETRY_AFTER_MAX:
        return False
    # Jitter: otherwise agents that were refused at the same time would retry at the same time.
    return error.retry_after * (1 + random.random() / 10)  # noqa: S311
