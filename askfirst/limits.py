"""The limits on what other programs and people send: to the service, and in the protocol's forms.

Every limit is in this module. ``docs/operate/service.md`` lists them in one table.
"""

from __future__ import annotations

from typing import TypeGuard

# What comes over HTTP.
BODY_BYTES = 4_000_000
"""The largest body of any request."""
SMALL_BODY_BYTES = 50_000
"""The largest body where only a few short texts are expected, such as the reason of a cancellation."""
BODY_VALUES = 20_000
"""The most values in a JSON body: texts, numbers, lists and objects, each counted once."""
BODY_DEPTH = 32
"""How deep objects and lists may be nested."""
OBJECT_FIELDS = 100
"""The most fields of an object with known fields, such as a review."""
POSTED_FIELDS = 10_000
"""The most fields that a browser may post with one form."""
HEADER_BYTES = 16_384
"""The request line and the headers together."""
ETAGS_CHARACTERS = 1_000
"""The length of ``If-None-Match``; a longer header is ignored."""
URL_CHARACTERS = 8_192
"""The length of any URL; checked before the URL is parsed."""
CALLBACK_URL_CHARACTERS = 2_048
"""The length of a URL that the service itself calls."""
FAULTS = 20
"""The most faults listed in the answer to one request; further ones are only counted."""

# What a case holds.
PROMPT_CHARACTERS = 500
MESSAGE_CHARACTERS = 2_000
CONTEXT_BYTES = 2_000_000
"""The size of a case's context as JSON."""
CONTEXT_FACTS = 500
"""The most fields of a context; each is shown separately."""
CONTEXT_ITEMS = 1_000
"""The most items to choose from, or to confirm."""
HIDDEN_CHARACTERS = 10_000
"""The most invisible characters in a case: each is shown by its name, which takes space."""
REMINDERS = 100
ADDRESSES = 20
"""The most addresses in ``verify_email``."""
INLINE_ACTIONS = 20
CHOICES = 20
"""The most choices of an escalation; a page shows all of them."""
CHOICE_CHARACTERS = 300
POLICY_VALUES = 500
"""The most values in a verification policy."""
REASON_CHARACTERS = 2_000
"""The length of the reason of a cancellation."""

# What a form holds.
FORM_FIELDS = 200
FORM_STEPS = 50
FIELD_OPTIONS = 1_000
"""The most options of one field."""
FORM_OPTIONS = 5_000
"""The most options of all fields together."""
LABEL_CHARACTERS = 200
HINT_CHARACTERS = 20_000
"""The length of a hint, a placeholder, a description, a title, or an option's label or value."""
CONDITION_VALUES = 200
"""The most values that a condition compares with."""
PATTERNS = 20
"""The most regular expressions in one form."""
PATTERN_CHARACTERS = 200
PATTERN_WEIGHT = 1_000
"""The cost of a regular expression, with its counted repetitions written out: a character costs 1, a class of Unicode
such as ``\\w`` costs 10, and ``{2,30}`` costs 30 times what it repeats."""
FORM_PATTERN_WEIGHT = 3_000
"""The cost of all regular expressions of one form together."""
PATTERN_CACHE_WEIGHT = 20_000
"""The cost of all cached compiled regular expressions; a cost of 10 takes about ten kilobytes."""
PATTERN_TEXT_CHARACTERS = 10_000
"""The length of a text that is matched with a regular expression."""

# What an answer holds.
TEXT_CHARACTERS = 1_000_000
"""The length of a text in a form's field that sets no limit itself."""
NOTE_CHARACTERS = 100_000
"""The length of a note, a reason or feedback."""
ANSWER_VALUES = 5_000
"""The most values in an answer's data."""
ANSWER_BYTES = 2_000_000
"""The size of an answer's data as JSON, and of a draft."""
CODE_CHARACTERS = 32
"""The length of a typed code."""
PROOFS = 10
"""The most proofs that come with an answer."""
PROOF_CHARACTERS = 20_000
"""The length of a proof that is entered on the page."""

# What connections may do, in ``askfirst serve``.
CONNECTIONS = 1_000
ADDRESS_CONNECTIONS = 200
"""The most connections from one address, unless it is this machine's own."""
HEADER_SECONDS = 10.0
"""The time-out for a request's headers, from the moment at which the connection is ready for them."""
BODY_SECONDS = 60.0
"""The time-out for a request's body."""
READING_SECONDS = 60.0
"""The time-out for a client that has stopped reading its answer."""

# Held decisions.

LONGEST_HOLD = 60.0
"""For how many seconds a decision made on the page can be undone at most."""


def is_hold(seconds: object) -> TypeGuard[float]:
    """Whether a decision can be held for so long."""
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= LONGEST_HOLD


# Links.

LINK_DAYS = 7.0
"""How many days a link is valid by default: the longest that the protocol allows."""
