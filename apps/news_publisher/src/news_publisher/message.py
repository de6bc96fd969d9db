"""An article as a Discord message, within Discord's limits."""

import unicodedata
from typing import Any

from news_publisher.items import QueueItem

TITLE, DESCRIPTION, FOOTER, NONCE = 256, 4_096, 2_048, 25
"""Discord's limits, in characters."""

_JOINER = "\u200d"


def message_of(item: QueueItem) -> dict[str, Any]:
    """Return the body of the request: one embed; mentions in the article are disabled."""
    title = item.title.strip() or item.url.strip() or item.unique_id
    embed: dict[str, Any] = {"title": cut(title, TITLE)}
    if item.url.startswith(("https://", "http://")):
        embed["url"] = item.url
    if item.content and item.content.strip():
        embed["description"] = cut(item.content.strip(), DESCRIPTION)
    footer = " · ".join(part for part in (item.platform, item.category) if part)
    if footer:
        embed["footer"] = {"text": cut(footer, FOOTER)}
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def cut(text: str, most: int) -> str:
    """Cut a text to a number of UTF-16 units (the strictest count), never inside an emoji."""
    if _length(text) <= most:
        return text
    kept, length = 0, 1  # 1 for the ellipsis
    for character in text:
        length += _length(character)
        if length > most:
            break
        kept += 1
    while kept > 0 and _continues(text, kept):
        kept -= 1
    return text[:kept].rstrip() + "…"


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _continues(text: str, at: int) -> bool:
    """Whether the character at an index belongs to the one before it."""
    here, before = text[at], text[at - 1]
    return (
        here == _JOINER
        or before == _JOINER
        or unicodedata.category(here) in ("Mn", "Me", "Sk")  # accents, variation selectors, skin tones
        or "\U0001f1e6" <= here <= "\U0001f1ff"  # half a flag
    )
