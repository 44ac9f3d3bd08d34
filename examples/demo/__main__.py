"""An agent that asks, and a page where you answer: ``scripts/demo``, or ``python examples/demo``.

The agent works at a refund desk. Before it pays, it asks: its request becomes a case of the service, which runs in
the same process on one SQLite file in a temporary folder. The link to the page is printed. Decide on the page, or
here by a key, and the agent goes on. ``--auto`` plays the person, through the same page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from desk import PROMPT, Desk, Paced, script
from play import Play

from askfirst.errors import AskfirstError
from askfirst.models import Model, PydanticAIModel

MODELS = {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5", "OPENAI_API_KEY": "openai:gpt-5"}
SCRIPTED = "scripted"


def model_name(given: str | None, auto: bool, environ: Mapping[str, str]) -> str:
    """The model to use: the one that is named, else one whose API key is set, else the script."""
    if given is not None:
        return given
    if auto:  # --auto has to end in the same way every time
        return SCRIPTED
    return next((name for variable, name in MODELS.items() if environ.get(variable)), SCRIPTED)


def make_model(name: str, pace: float) -> Model:
    return Paced(script(), pace) if name == SCRIPTED else PydanticAIModel(name)


def port_of(text: str) -> int:
    """A port, or 0 for any that is free."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number up to 65535, not {text!r}")
    return int(text)


def options_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo", description="An agent that asks before it pays, and the page where you answer."
    )
    parser.add_argument("--auto", action="store_true", help="play the person too; exit 0 if all went well")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="such as anthropic:claude-sonnet-5, or 'scripted' (default: a real one if its API key is set)",
    )
    parser.add_argument("--prompt", default=PROMPT, help="what to ask (the scripted model answers only one)")
    parser.add_argument("--fast", action="store_true", help="do not slow down for a reader")
    parser.add_argument(
        "--port", type=port_of, default=0, help="the port of the page (default: any that is free)"
    )
    parser.add_argument(
        "--base-url", metavar="URL", help="where a phone reaches that port, such as the address of a tunnel"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = options_of(argv)
    name = model_name(options.model, options.auto, os.environ)
    pace = 0 if options.fast else 0.09
    try:
        model = make_model(name, pace)
    except (AskfirstError, ImportError) as error:
        print(f"The model {name} cannot be used: {error} (--model {SCRIPTED} needs none.)", file=sys.stderr)
        return 2
    play = Play(model, Desk(pace), auto=options.auto)
    try:
        return asyncio.run(play.run(options.prompt, options.port, options.base_url))
    except (AskfirstError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
