"""Masking of secrets in logs, errors and views: line by line, before anything is written.

Masked are: values of the given environment variables and of variables with secret-sounding names (plain, quoted and
escaped), text that looks like a key, credentials in URLs (user:password@, ?token=…), and matches of user-defined patterns.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from onerow.core.errors import BadInput

MASK = "***"

# Words in a variable's name that indicate a secret.
_SECRET_WORDS = frozenset(
    {
        *("KEY", "APIKEY", "TOKEN", "SECRET", "CREDENTIAL", "CREDENTIALS"),
        *("PASSWORD", "PASSWD", "PASS", "PASSPHRASE", "PGPASSWORD"),
    }
)
_SHORTEST_NAMED = 4
_SHORTEST_FOUND = 8
_LONGEST_MATCH = 8_000

# (keyword: a lower-case text that every match contains; pattern; replacement). The pattern runs only on text that has
# the keyword. All quantifiers are bounded and none matches a newline, so a match is a bounded part of one line.
_PATTERNS: list[tuple[str, str, str]] = [
    ("sk-", r"\bsk-[A-Za-z0-9_\-]{16,400}", f"sk-{MASK}"),
    ("k_live_", r"\b([sr])k_live_[A-Za-z0-9]{10,200}", rf"\1k_live_{MASK}"),
    *((f"gh{kind}_", rf"\bgh{kind}_[A-Za-z0-9]{{20,255}}", f"gh{kind}_{MASK}") for kind in "pousr"),
    ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,255}", f"github_pat_{MASK}"),
    ("glpat-", r"\bglpat-[A-Za-z0-9_\-]{16,255}", f"glpat-{MASK}"),
    ("xox", r"\b(xox[abeoprs])-[A-Za-z0-9\-]{10,255}", rf"\1-{MASK}"),
    ("akia", r"\bAKIA[0-9A-Z]{16}\b", f"AKIA{MASK}"),
    ("asia", r"\bASIA[0-9A-Z]{16}\b", f"ASIA{MASK}"),
    ("aiza", r"\bAIza[0-9A-Za-z_\-]{35}", f"AIza{MASK}"),
    ("ya29.", r"\bya29\.[0-9A-Za-z_\-]{20,1000}", f"ya29.{MASK}"),
    ("hf_", r"\bhf_[A-Za-z0-9]{20,100}", f"hf_{MASK}"),
    ("eyj", r"\beyJ[A-Za-z0-9_\-]{8,3000}\.[A-Za-z0-9_\-]{8,3000}(?:\.[A-Za-z0-9_\-]{0,1000})?", MASK),
    ("bearer", r"\b([Bb]earer|BEARER)([ \t]{1,4})[A-Za-z0-9._~+/\-]{8,3000}={0,2}", rf"\1\2{MASK}"),
    ("basic", r"\b([Bb]asic|BASIC)([ \t]{1,4})[A-Za-z0-9+/]{12,1000}={0,2}(?![\w=])", rf"\1\2{MASK}"),
    ("://", r"(://[^\s:/@'\"]{0,200}:)[^\s/@'\"]{1,1000}@", rf"\1{MASK}@"),
    # A URL whose user is itself the secret; a shorter one is the name of a user.
    ("://", r"(://)[^\s:/@'\"]{16,400}:?@", rf"\1{MASK}@"),
    ("private key-----", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-\n]{0,4000}", MASK),
]
_WORDS = ("password", "passwd", "secret", "token", "api_key", "apikey", "api-key", "access_key", "private_key")
# Of a field, without the separators of words in its name.
_FIELDS = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "accesskey", "privatekey"),
    *("credential", "authorization"),
)
_ASSIGNED = (
    rf"(?i:((?:{'|'.join(_WORDS)})[a-z0-9_\-]{{0,30}}['\"]?[ \t]{{0,3}}[=:]>?[ \t]{{0,3}}['\"]?))[^\s'\",;&]{{6,1000}}"
)
_PATTERNS += [(keyword, _ASSIGNED, rf"\1{MASK}") for keyword in ("passw", "secret", "token", "api", "_key")]
# A query of a URL: every value counts, however short, because its name says what it is.
_PARAMETER = (
    r"(?i:((?:[a-z0-9]{1,30}[_.\-]){0,4}(?:(?:api|access|auth|session)?(?:key|token)|pass(?:word|wd)?|pwd|secret"
    r"|sig(?:nature)?|auth|credentials?)=))[^\s&#'\"<>]{1,1000}"
)
_PATTERNS += [(mark, rf"({re.escape(mark)}(?:amp;)?)(?:{_PARAMETER})", rf"\1\2{MASK}") for mark in "?&"]
_COMPILED = [(keyword, re.compile(pattern), replacement) for keyword, pattern, replacement in _PATTERNS]
# Searching for one character is ten times faster: (character that these keywords imply, keywords).
_GATES = [
    ("_", ("k_live_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "_key")),
    ("-", ("sk-", "glpat-", "xox", "private key-----")),
    ("@", ("://",)),
    (".", ("ya29.", "eyj")),
    ("=", ("?", "&")),
    ("", ("akia", "asia", "aiza", "bearer", "basic", "passw", "secret", "token", "api")),
]
# Excludes words such as "task-", which are too frequent to be treated as keys.
_SK = re.compile(r"sk-(?<![a-z0-9_]sk-)")


class Masker:
    """Masks secrets in text, line by line; each line of a multi-line secret is masked separately."""

    def __init__(self, values: Iterable[str] = (), patterns: Iterable[str | re.Pattern[str]] = ()) -> None:
        forms = {form for value in values for form in _forms(value)}
        # Longest first, so that a secret that contains another one is masked completely.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._values = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._forms = ordered
        self._own = [_compiled(pattern) for pattern in patterns]
        self.longest: int = max([len(form) for form in ordered] + [_LONGEST_MATCH])  # maximum length of a secret

    @classmethod
    def of_environment(
        cls,
        named: Iterable[str] = (),
        patterns: Iterable[str | re.Pattern[str]] = (),
        environment: Mapping[str, str] | None = None,
    ) -> "Masker":
        """Build a masker for the named variables and for all variables with secret-sounding names."""
        known = os.environ if environment is None else environment
        wanted = set(named)
        values = [
            value
            for name, value in known.items()
            if (name in wanted and len(value) >= _SHORTEST_NAMED)
            or (len(value) >= _SHORTEST_FOUND and _SECRET_WORDS & set(name.upper().split("_")))
        ]
        return cls(values, patterns)

    def text(self, text: str) -> str:
        """Return the text, of any number of lines, with secrets masked."""
        if not text:
            return text
        if self._values is not None and any(form in text for form in self._forms):
            text = self._values.sub(MASK, text)
        for pattern in self._own:
            if pattern.search(text) is not None:
                text = "\n".join([pattern.sub(MASK, line) for line in text.split("\n")])
        lower = text.lower()
        keywords = [keyword for gate, implying in _GATES if gate in lower for keyword in implying if keyword in lower]
        if "sk-" in keywords and _SK.search(lower) is None:
            keywords.remove("sk-")
        if keywords:
            for keyword, pattern, replacement in _COMPILED:
                if keyword in keywords:
                    text = pattern.sub(replacement, text)
        return text

    def values_in(self, text: str) -> str:
        """Mask only values of variables, not text that looks like a key."""
        return text if self._values is None else self._values.sub(MASK, text)

    def value(self, value: Any) -> Any:
        """Return a JSON value with all its strings masked."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(key): self._member(key, item) for key, item in value.items()}
        return value

    def _member(self, key: str, item: Any) -> Any:
        name = re.sub("[-_ ]", "", key).lower()
        return _hidden(item) if any(word in name for word in _FIELDS) else self.value(item)


def _hidden(item: Any) -> Any:
    """Return the value of a secret-sounding key with every text in it masked; numbers stay ('max_tokens')."""
    match item:
        case str():
            return MASK if item else item
        case list():
            return [_hidden(each) for each in item]
        case dict():
            return {key: _hidden(each) for key, each in item.items()}
    return item


def _forms(value: str) -> Iterable[str]:
    """Yield the forms in which programs may print a secret: line by line, escaped, or URL-encoded."""
    for line in {value, value.strip(), *value.splitlines()}:
        if len(line) >= _SHORTEST_NAMED and "\n" not in line:
            yield from (line, json.dumps(line)[1:-1], repr(line)[1:-1], quote(line, safe=""), quote_plus(line))
    if "\n" in value:
        yield from (json.dumps(value)[1:-1], repr(value)[1:-1])


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        # Several lines are searched at once, so anchors must match at each line.
        return re.compile(
            pattern if isinstance(pattern, str) else pattern.pattern,
            re.MULTILINE | (0 if isinstance(pattern, str) else pattern.flags),
        )
    except re.error as error:
        raise BadInput(f"{pattern!r} is no regular expression: {error}", field="mask") from None


NO_SECRETS = Masker()
"""Masks only text that looks like a key."""
