"""Why main.py fails: each problem has an error class, which its exit code tells the worker."""

import errno

import httpx
import msgspec

EXIT_CODES = {"permanent": 65, "network": 69, "unknown": 70, "resource": 71, "limit": 75, "auth": 77}
"""Error class → exit code of main.py."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Problem(Exception):
    """A failure that main.py reports in one line."""

    def __init__(self, message: str, error_class: str = "permanent") -> None:
        super().__init__(message)
        self.error_class = error_class


def problem_of(error: Exception) -> Problem | None:
    """Return a known failure as a Problem; None for a defect of the program."""
    match error:
        case Problem():
            return error
        case httpx.HTTPStatusError():
            return _of_status(error.response)
        case httpx.InvalidURL() | httpx.UnsupportedProtocol() | httpx.TooManyRedirects():
            return Problem(f"the URL can't be used: {error}")
        case httpx.HTTPError():
            return Problem(f"{_host(error)}{type(error).__name__}: {error}", "network")
        case MemoryError():
            return Problem("out of memory", "resource")
        case OSError() if error.errno in _FULL:
            return Problem(f"{error.strerror}: {error.filename or 'disk'}", "resource")
        case OSError() if error.filename:
            return Problem(f"{error.strerror}: {error.filename}", "unknown")
    return None


def _host(error: httpx.HTTPError) -> str:
    try:
        return f"{error.request.url.host}: "
    except RuntimeError:  # it belongs to no request
        return ""


def _of_status(response: httpx.Response) -> Problem:
    where = f"{response.request.method} {response.request.url.copy_with(query=None)}"
    said = f"{where}: {response.status_code} {response.reason_phrase}{_reason(response)}"
    match response.status_code:
        case 401 | 402 | 403:
            return Problem(f"{said}; check the key or the rights", "auth")
        case 429:
            return Problem(f"{said}; the limit of requests is reached", "limit")
        case 408 | 425:
            return Problem(said, "network")
        case code if code >= 500:
            return Problem(said, "network")
    return Problem(said)


def _reason(response: httpx.Response) -> str:
    """Return what an endpoint with OpenAI's API says: a wrong model and a wrong request have the same status."""
    try:
        return f" ({msgspec.json.decode(response.content)['error']['message'][:300]})"
    except (httpx.ResponseNotRead, msgspec.DecodeError, KeyError, TypeError):
        return ""  # of a download, or of another server
