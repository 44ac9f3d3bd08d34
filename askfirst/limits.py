"""How much is taken of anything that others send: the limits of the service and of the protocol's forms.

All of them stand here. ``docs/operate/service.md`` has them in one table.
"""

from __future__ import annotations

# What comes over HTTP.
BODY_BYTES = 4_000_000
"""Of a request's body, whoever sends it."""
SMALL_BODY_BYTES = 50_000
"""Of a body that has only a few short texts in it, such as the reason of a cancellation."""
BODY_VALUES = 20_000
"""Of values in a body of JSON: texts, numbers, lists, objects, each counted once."""
BODY_DEPTH = 32
"""Of objects and lists within one another."""
OBJECT_FIELDS = 100
"""Of names in an object whose names are known, such as a review."""
POSTED_FIELDS = 10_000
"""Of fields that a browser posts with one form."""
HEADER_BYTES = 16_384
"""Of a request's line and headers together."""
ETAGS_CHARACTERS = 1_000
"""Of ``If-None-Match``; a longer one is not looked at."""
URL_CHARACTERS = 8_192
"""Of any address; looked at before anything else of it."""
CALLBACK_URL_CHARACTERS = 2_048
"""Of an address that the service itself calls."""
FAULTS = 20
"""Of faults that are told of one request; how many more there are is said in words."""

# What a case holds.
PROMPT_CHARACTERS = 500
MESSAGE_CHARACTERS = 2_000
CONTEXT_BYTES = 2_000_000
"""Of a case's context as JSON."""
CONTEXT_FACTS = 500
"""Of names in a context, each of which is shown by itself."""
CONTEXT_ITEMS = 1_000
"""Of items to choose from, or to confirm."""
HIDDEN_CHARACTERS = 10_000
"""Of characters in a case that would not be seen: each is shown by its name, which takes room."""
REMINDERS = 100
ADDRESSES = 20
"""Of addresses in ``verify_email``."""
INLINE_ACTIONS = 20
POLICY_VALUES = 500
"""Of values in a verification policy."""
REASON_CHARACTERS = 2_000
"""Of the reason of a cancellation."""

# What a form holds.
FORM_FIELDS = 200
FORM_STEPS = 50
FIELD_OPTIONS = 1_000
"""Of options of one field."""
FORM_OPTIONS = 5_000
"""Of options of all fields together."""
LABEL_CHARACTERS = 200
HINT_CHARACTERS = 20_000
"""Of a hint, a placeholder, a description, a title, or an option's label or value."""
CONDITION_VALUES = 200
"""Of values that a condition compares with."""
PATTERNS = 20
"""Of patterns in one form."""
PATTERN_CHARACTERS = 200
PATTERN_WEIGHT = 1_000
"""Of what a pattern comes to when its counted repetitions are written out: a character is 1, a class of Unicode
such as ``\\w`` is 10, and ``{2,30}`` is 30 times what stands before it."""
FORM_PATTERN_WEIGHT = 3_000
"""Of all patterns of one form together."""
PATTERN_CACHE_WEIGHT = 20_000
"""Of all compiled patterns that are kept; ten kilobytes or so for each 10 of it."""
PATTERN_TEXT_CHARACTERS = 10_000
"""Of a text that a pattern is held against."""

# What an answer holds.
TEXT_CHARACTERS = 1_000_000
"""Of a text in a form's field that sets no bound of its own."""
NOTE_CHARACTERS = 100_000
"""Of a note, a reason, feedback."""
ANSWER_VALUES = 5_000
"""Of values in an answer's data."""
ANSWER_BYTES = 2_000_000
"""Of an answer's data as JSON, and of a draft."""
CODE_CHARACTERS = 32
"""Of a code as somebody types it."""
PROOFS = 10
"""Of proofs that come with an answer."""
PROOF_CHARACTERS = 20_000
"""Of a proof that is entered on the page."""

# What connections may do, in ``askfirst serve``.
CONNECTIONS = 1_000
ADDRESS_CONNECTIONS = 200
"""Of connections from one address that is not this machine's own."""
HEADER_SECONDS = 10.0
"""Until a request's headers are there, from the moment at which the connection is ready for them."""
BODY_SECONDS = 60.0
"""Until a request's body is there."""
READING_SECONDS = 60.0
"""Until somebody who has stopped reading an answer goes on."""

# Links.

LINK_DAYS = 7.0
"""How many days a link is good for unless the operator says otherwise: the protocol's longest."""
