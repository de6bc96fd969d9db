"""Bearer tokens and users with passwords: hashes, and the access file that holds them."""

import base64
import hashlib
import hmac
import re
import secrets
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean
from onerow.web.security.roles import Identity, Role, parse_role

_COST, _BLOCK, _PARALLEL = 2**15, 8, 1  # 32 MiB and about 0.1 s for each try
_MEMORY = 64 * 2**20
_SHORTEST_TOKEN, _SHORTEST_PASSWORD, _LONGEST_PASSWORD = 20, 8, 1000
_NAME = re.compile(r"[^\s/:\x00-\x1f\x7f]{1,100}")
_KEYS = {"tokens": ("role", "user", "token", "sha256"), "users": ("role", "user", "password")}
_one_at_a_time = threading.Semaphore(2)  # each check of a password takes 32 MiB


class Access(msgspec.Struct, frozen=True):
    """The known callers: identities by the SHA-256 of their token, and by user name with the hash of the password."""

    tokens: Mapping[str, Identity] = {}
    users: Mapping[str, tuple[Identity, str]] = {}

    def __bool__(self) -> bool:
        return bool(self.tokens or self.users)

    def with_token(self, name: str, token: str, role: Role | str, user_id: str | None = None) -> "Access":
        """Return this access with one more bearer token."""
        if len(token) < _SHORTEST_TOKEN:
            raise BadInput(
                f"the token {name!r} must have at least {_SHORTEST_TOKEN} characters",
                fix="make one: onerow access token NAME",
                field="token",
            )
        return self._with_digest(name, hash_token(token), role, user_id)

    def _with_digest(self, name: str, digest: str, role: Role | str, user_id: str | None) -> "Access":
        identity = Identity(_checked_name(name), _role(role), user_id)
        return Access({**self.tokens, digest: identity}, self.users)

    def with_user(self, name: str, password_hash: str, role: Role | str, user_id: str | None = None) -> "Access":
        """Return this access with one more user; `hash_password` makes the hash."""
        if not _parts(password_hash):
            raise BadInput(
                f"the password of {name!r} is not a hash that this version knows",
                fix="make one: onerow access user NAME",
                field="password",
            )
        identity = Identity(_checked_name(name), _role(role), user_id)
        return Access(self.tokens, {**self.users, identity.name: (identity, password_hash)})

    def of_token(self, token: str) -> Identity | None:
        """Return the holder of a bearer token; a lookup by digest tells nothing by its time."""
        return self.tokens.get(hash_token(token))

    def of_password(self, name: str, password: str) -> Identity | None:
        """Return the user; an unknown name takes as long as a wrong password."""
        identity, known = self.users.get(name, (None, _UNKNOWN))
        right = check_password(password, known)
        return identity if right else None

    def fingerprint(self, name: str) -> str:
        """Return a text that changes with the user's password, so that old sessions end with it; '' if unknown."""
        found = self.users.get(name)
        return "" if found is None else hashlib.sha256(found[1].encode()).hexdigest()[:16]


def read_access(path: Path) -> Access:
    """Read an access file: TOML with tables [tokens.NAME] and [users.NAME]."""
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"can't read {path}: {error}", field="access") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}", field="access") from None
    access = Access()
    for kind, entries in tables.items():
        if kind not in _KEYS or not isinstance(entries, dict):
            raise BadInput(f"{path}: unknown table [{kind}]", fix=did_you_mean(kind, _KEYS), field="access")
        for name, entry in entries.items():
            access = _with_entry(access, path, kind, name, entry)
    return access


def _with_entry(access: Access, path: Path, kind: str, name: str, entry: Any) -> Access:
    where = f"{path}: [{kind}.{name}]"
    if not isinstance(entry, dict):
        raise BadInput(f"{where} is not a table", field="access")
    for key, value in entry.items():
        if key not in _KEYS[kind]:
            raise BadInput(f"{where} has an unknown key {key!r}", fix=did_you_mean(key, _KEYS[kind]), field="access")
        if not isinstance(value, str):
            raise BadInput(f"{where}: {key} must be text", field="access")
    role, user_id = entry.get("role", "viewer"), entry.get("user")
    if kind == "users":
        return access.with_user(name, entry.get("password", ""), role, user_id)
    if ("token" in entry) == ("sha256" in entry):
        raise BadInput(f"{where} needs either token or sha256", fix="make it: onerow access token NAME", field="access")
    if "token" in entry:
        return access.with_token(name, entry["token"], role, user_id)
    digest = entry["sha256"].lower()
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise BadInput(f"{where}: sha256 must be 64 hexadecimal digits", field="access")
    return access._with_digest(name, digest, role, user_id)


def read_token(path: Path) -> str:
    """Read a file that holds one token."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"can't read {path}: {error}", field="token-file") from None
    if not token or token != "".join(token.split()):
        raise BadInput(f"{path} must hold one token and nothing else", field="token-file")
    return token


def new_token() -> str:
    return f"onerow_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token. Tokens are random, so a slow hash would add nothing."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def hash_password(password: str, cost: int = _COST) -> str:
    """Return 'scrypt:COST:SALT:HASH'; raise BadInput if the password is too short."""
    if not _SHORTEST_PASSWORD <= len(password) <= _LONGEST_PASSWORD:
        raise BadInput(f"a password needs at least {_SHORTEST_PASSWORD} characters", field="password")
    salt = secrets.token_bytes(16)
    return f"scrypt:{cost}:{_text(salt)}:{_text(_scrypt(password, salt, cost))}"


def check_password(password: str, known: str) -> bool:
    """Whether a password has this hash; takes the same time for every password."""
    cost, salt, expected = _parts(known) or _parts(_UNKNOWN)  # type: ignore[misc]
    given = _scrypt(password[:_LONGEST_PASSWORD], salt, cost)
    return hmac.compare_digest(given, expected)


def _scrypt(password: str, salt: bytes, cost: int) -> bytes:
    with _one_at_a_time:
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=salt, n=cost, r=_BLOCK, p=_PARALLEL, maxmem=_MEMORY, dklen=32,
        )  # fmt: skip


def _parts(known: str) -> tuple[int, bytes, bytes] | None:
    found = re.fullmatch(r"scrypt:(\d{4,6}):([A-Za-z0-9_-]{16,100}=*):([A-Za-z0-9_-]{43}=)", known)
    if found is None or int(found[1]) > _COST or int(found[1]) & (int(found[1]) - 1):
        return None
    return int(found[1]), base64.urlsafe_b64decode(found[2]), base64.urlsafe_b64decode(found[3])


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


_UNKNOWN = f"scrypt:{_COST}:{_text(bytes(16))}:{_text(bytes(32))}"  # no password has this hash


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name!r} must be 1 to 100 characters without blanks, '/' and ':'", field="name")
    return name


def _role(role: Role | str) -> Role:
    return role if isinstance(role, Role) else parse_role(role)
