"""What the text table of a safetensors file says that its tensors do not.

The table (``__metadata__``) is for anybody's notes, but some entries are part of how the tensors are
written: names that were left out because they are tied, digests of the numbers. Those say nothing once
the tensors are read. What stands in the digests' place and is none is a note. ``format`` names the
framework; where it is not said it is PyTorch, as in the files that ``save`` writes: readers take it so.
"""

from __future__ import annotations

from bridge.checkpoint._content import Content
from bridge.checkpoint._digests import TEXT, are_digests


def texts_of(content: Content) -> dict[str, str]:
    """Return the entries of a file's text table that stand for themselves."""
    # A note that ties one name to another has had its effect: both names are in the value.
    value = content.value if isinstance(content.value, dict) else {}
    table = content.file_metadata.items()
    gone = {name for name, other in table if name in value and other in value}
    if are_digests(content.file_metadata.get(TEXT, "")):
        gone.add(TEXT)
    return {"format": "pt"} | {key: text for key, text in table if key not in gone}
