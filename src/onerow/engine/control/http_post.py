"""HTTP POST for alerts and webhooks. Import it where it is called: its imports take a tenth of a program's start."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any


class NotAccepted(Exception):
    """The answer was not 2xx (`status`), or there was none. The message has no URL, which may contain a secret."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(reason)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: following it would send data to an address that was not configured, or not as a POST."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """Send the body; raise NotAccepted unless the answer is 2xx."""
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    try:
        with _opener.open(request, timeout=timeout) as answer:
            answer.read(1_000_000)
    except urllib.error.HTTPError as error:
        error.close()
        raise NotAccepted(str(error.reason or error.code), error.code) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise NotAccepted(str(getattr(error, "reason", None) or error)) from None
