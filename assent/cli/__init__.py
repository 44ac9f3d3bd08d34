"""Assent in a terminal; needs the ``cli`` extra."""
