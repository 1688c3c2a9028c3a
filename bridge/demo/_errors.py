"""What ends the demo with status 1."""


class Mismatch(Exception):
    """Something that has to be equal is not; the text says what."""
