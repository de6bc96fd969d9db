"""Settings from the environment: the studio's folder, the format of films, and services."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import msgspec

from onerow import BadInput


class Look(msgspec.Struct, frozen=True):
    """The format of films: size in pixels, frames per second, and length in seconds (0: from the script)."""

    width: int = 1280
    height: int = 720
    fps: int = 24
    seconds: float = 0


class Endpoint(msgspec.Struct, frozen=True):
    """A chat endpoint with OpenAI's API."""

    url: str
    key: str
    model: str
    timeout: float = 60


class YouTube(msgspec.Struct, frozen=True):
    """An account's OAuth client, and the URLs of Google or of a compatible server."""

    client_id: str
    client_secret: str
    refresh_token: str
    base_url: str = "https://www.googleapis.com"
    token_url: str = "https://oauth2.googleapis.com/token"
    privacy: Literal["private", "unlisted", "public"] = "private"
    chunk: int = 8 * 1024 * 1024
    timeout: float = 60


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one studio."""

    home: Path
    look: Look = Look()
    endpoint: Endpoint | None = None
    youtube: YouTube | None = None  # None: publish to a folder
    phase_timeout: str = "15m"
    retry_wait: str = "5s"
    font: Path | None = None

    @property
    def database(self) -> Path:
        return self.home / "studio.db"

    @property
    def uploads(self) -> Path:
        return self.home / "uploads"

    @property
    def films(self) -> Path:
        return self.home / "videos"

    @property
    def published(self) -> Path:
        return self.home / "published"

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read the variables STUDIO_…; raise an error that names a wrong variable."""
        env = os.environ if variables is None else variables
        return cls(
            home=Path(env.get("STUDIO_HOME") or "studio").expanduser().absolute(),
            look=_look(env),
            endpoint=_endpoint(env),
            youtube=_youtube(env),
            phase_timeout=env.get("STUDIO_PHASE_TIMEOUT") or "15m",
            retry_wait=env.get("STUDIO_RETRY_WAIT") or "5s",
            font=Path(env["STUDIO_FONT"]) if env.get("STUDIO_FONT") else None,
        )


def _look(env: Mapping[str, str]) -> Look:
    size = re.fullmatch(r"(\d{2,4})x(\d{2,4})", env.get("STUDIO_SIZE") or "1280x720")
    if size is None or int(size[1]) % 2 or int(size[2]) % 2:
        raise BadInput("STUDIO_SIZE must be WIDTHxHEIGHT in even numbers of pixels, like 1280x720", field="STUDIO_SIZE")
    fps = _number(env, "STUDIO_FPS", 24, 1, 60)
    return Look(int(size[1]), int(size[2]), int(fps), _number(env, "STUDIO_SECONDS", 0, 0, 3600))


def _number(env: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = env.get(name) or ""
    try:
        value = float(text) if text else default
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise BadInput(f"{name} must be a number from {least:g} to {most:g}, not {text!r}", field=name)
    return value


def _endpoint(env: Mapping[str, str]) -> Endpoint | None:
    url = env.get("STUDIO_OPENAI_BASE_URL")
    if not url:
        return None
    return Endpoint(
        url.rstrip("/"),
        env.get("STUDIO_OPENAI_API_KEY") or env.get("OPENAI_API_KEY") or "",
        env.get("STUDIO_OPENAI_MODEL") or "gpt-4o-mini",
        _number(env, "STUDIO_OPENAI_TIMEOUT", 60, 0.1, 600),
    )


def _youtube(env: Mapping[str, str]) -> YouTube | None:
    target = env.get("STUDIO_TARGET") or "folder"
    if target == "folder":
        return None
    if target != "youtube":
        raise BadInput(f"STUDIO_TARGET must be 'folder' or 'youtube', not {target!r}", field="STUDIO_TARGET")
    needed = ("STUDIO_YOUTUBE_CLIENT_ID", "STUDIO_YOUTUBE_CLIENT_SECRET", "STUDIO_YOUTUBE_REFRESH_TOKEN")
    missing = [name for name in needed if not env.get(name)]
    if missing:
        raise BadInput(f"STUDIO_TARGET=youtube also needs {', '.join(missing)}", field=missing[0])
    privacy = env.get("STUDIO_YOUTUBE_PRIVACY") or "private"
    if privacy not in ("private", "unlisted", "public"):
        raise BadInput(
            f"STUDIO_YOUTUBE_PRIVACY must be private, unlisted or public, not {privacy!r}",
            field="STUDIO_YOUTUBE_PRIVACY",
        )
    given = {
        "client_id": env[needed[0]],
        "client_secret": env[needed[1]],
        "refresh_token": env[needed[2]],
        "base_url": env.get("STUDIO_YOUTUBE_BASE_URL", "").rstrip("/"),
        "token_url": env.get("STUDIO_YOUTUBE_TOKEN_URL", ""),
        "privacy": privacy,
        # The protocol requires multiples of 256 KB.
        "chunk": int(_number(env, "STUDIO_YOUTUBE_CHUNK_KB", 8192, 256, 262_144)) // 256 * 256 * 1024,
        "timeout": _number(env, "STUDIO_YOUTUBE_TIMEOUT", 60, 0.1, 600),
    }
    return msgspec.convert({name: value for name, value in given.items() if value != ""}, YouTube)
