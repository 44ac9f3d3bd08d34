"""The page templates: compiled once, and rendered in the reader's language."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from askfirst.errors import MissingExtra
from askfirst.service.assets import assets
from askfirst.service.pages.inert_text import Html, language_in, marked
from askfirst.service.pages.language import Language, languages
from askfirst.service.pages.reader import Reader

if TYPE_CHECKING:
    from jinja2 import Environment


_HERE = Path(__file__).parent.parent


def load_pages() -> None:
    """Compile every template and read every catalogue and static file now, so that the first page is not slower."""
    _environment()
    languages()
    assets()


class Say:
    """The function ``t`` of the templates, which gives a sentence: ``t("asker", agent=...)``."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self.has = language.has

    def __call__(self, key: str, **facts: Any) -> Html:
        return self._language.say(key, **facts)


def fill(template: str, to: Reader, base_path: str, facts: Mapping[str, Any]) -> str:
    """Render a template in the reader's language."""

    def static(file: str) -> str:
        return f"{base_path}/static/{assets()[file].name}"

    def spoken(text: str) -> Html:
        """The attribute ``lang`` of a text in another script than the page's."""
        tag = language_in(text)
        return Html("" if tag is None or to.language.tag.startswith(tag) else f' lang="{tag}"')

    given: dict[str, Any] = {
        "spoken": spoken,
        "t": Say(to.language),
        "lang": to.language.tag,
        "scheme": to.scheme,
        "languages": list(languages().values()),
        "organisation": marked(to.organisation),
        "reader": None,
        "static": static,
        "problems": [],
        "notice": None,
        "live": None,
    }
    return _environment().get_template(template).render(given | dict(facts))


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
