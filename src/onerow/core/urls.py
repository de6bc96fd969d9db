"""Mask passwords in store URLs, including URLs that no parser accepts."""

import re

_PASSWORD = re.compile(r"(?P<before>//[^/?#:@\s]*:)(?P<password>.*)(?=@)", re.DOTALL)
_SECRET_OPTION = re.compile(r"(?i)([?&][^=&#]*(?:password|passwd|secret|token)[^=&#]*=)[^&#\s]*")
MASK = "***"


def mask_password(url: str) -> str:
    """Return the URL with its password and secret options replaced by ***.

    The password ends at the last @ of the URL, so that an unescaped @, / or ? in it is masked as well.
    """
    return _SECRET_OPTION.sub(rf"\g<1>{MASK}", _PASSWORD.sub(rf"\g<before>{MASK}", str(url)))


def mask_in(text: str, url: str) -> str:
    """Return a message about a URL without any part of the URL's password."""
    text = text.replace(url, mask_password(url))
    found = _PASSWORD.search(url)
    if found and found["password"]:
        for piece in sorted({found["password"], *re.split(r"[@:/?#\[\]]", found["password"])}, key=len, reverse=True):
            if len(piece) > 2:
                text = text.replace(piece, MASK)
    return text
