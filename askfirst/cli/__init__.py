"""Askfirst in a terminal; needs the ``cli`` extra."""
