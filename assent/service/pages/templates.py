"""The templates, read and compiled once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assent.errors import MissingExtra

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent.parent
STATIC = _HERE / "static"
"""The folder to serve at ``{base_path}/static``: style sheet, script and icon."""


def load_pages() -> None:
    """Read every template now, so that no page has to; else the first page does."""
    _environment()


def fill(name: str, **facts: Any) -> str:
    """The page of a template."""
    return _environment().get_template(name).render(facts)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingExtra("The review page", "service") from error
    sources = {path.name: path.read_text("utf-8") for path in (_HERE / "templates").glob("*.html")}
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
    )
    for name in sources:
        environment.get_template(name)
    return environment
