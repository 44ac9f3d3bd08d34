"""Strategies: every message that can be made."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from askfirst.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResultMessage,
    UnknownPart,
    Usage,
    UserMessage,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
optional_objects = st.none() | json_objects
unknown_fields = st.dictionaries(names.map(lambda name: f"x_{name}"), json_values, max_size=2)


def _build(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    made = st.tuples(st.fixed_dictionaries(fields), unknown_fields)
    return made.map(lambda both: kind(**both[0], **both[1]))


text_parts = _build(TextPart, text=texts, provider=optional_objects)
thinking_parts = _build(ThinkingPart, text=texts, signature=st.none() | texts, provider=optional_objects)
tool_calls = _build(
    ToolCall,
    id=names,
    name=names,
    args=json_objects,
    malformed=st.none() | texts,
    provider=optional_objects,
)
unknown_parts = _build(UnknownPart, type=names.map(lambda name: f"new_{name}"))
sources = st.binary(max_size=8).map(lambda data: {"data": data}) | texts.map(lambda url: {"url": url})
images = st.builds(lambda media, source: ImagePart(media_type=media, **source), names, sources)
files = st.builds(
    lambda media, name, source: FilePart(media_type=media, name=name, **source),
    names,
    st.none() | names,
    sources,
)
input_contents = st.lists(text_parts | images | files | unknown_parts, max_size=3)
output_contents = st.lists(text_parts | thinking_parts | tool_calls | unknown_parts, max_size=3)
counts = st.integers(0, 2**70)
usages = st.builds(
    lambda a, b, c, d: Usage(input_tokens=a, output_tokens=b, cache_read_tokens=c, cache_write_tokens=d),
    counts,
    counts,
    counts,
    counts,
)
messages = (
    _build(UserMessage, content=input_contents)
    | _build(
        AssistantMessage,
        content=output_contents,
        stop_reason=st.sampled_from(["end", "tool_use", "length", "aborted", "error"]),
        usage=usages,
        error=st.none() | texts,
    )
    | _build(
        ToolResultMessage,
        tool_call_id=names,
        tool_name=names,
        content=input_contents,
        is_error=st.booleans(),
        details=optional_objects,
    )
)
