"""Makes text from tasks safe to print: replaces control and bidirectional-text characters."""

import re

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, clipboards
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_BLANK = re.compile("[\t-\r\x85\u2028\u2029]")
# Control characters, bidirectional-text controls, and surrogates, which no stream can encode.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]")
_IN_JSON = re.compile(_CONTROL.pattern.replace("\x00-\x1f", ""))


def neutral(text: str) -> str:
    """Return one printable line: no escape sequences, blanks for tabs and line ends, \\xNN for control characters."""
    if text.isprintable():
        return text
    return _CONTROL.sub(_escape, _BLANK.sub(" ", _SEQUENCE.sub("", text)))


def neutral_lines(text: str) -> str:
    """Like `neutral`, for text of several lines, which are kept."""
    return text if text.isprintable() else "\n".join(map(neutral, text.split("\n")))


def neutral_json(document: str) -> str:
    """Return a JSON document of equal value, with such characters escaped as \\uXXXX."""
    # Outside strings a document contains only line feeds, which are layout.
    return document if document.isprintable() else _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
