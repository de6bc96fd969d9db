"""OAuth 2 access tokens from a refresh token."""

import httpx

from video_studio.settings import YouTube


class Account:
    """An account that authorised the studio; access tokens are fetched when needed and kept in memory only."""

    def __init__(self, client: httpx.AsyncClient, youtube: YouTube) -> None:
        self._client = client
        self._youtube = youtube
        self._token = ""

    async def token(self, *, fresh: bool = False) -> str:
        """Return a valid token; `fresh`: the last one was refused. Raise PermissionError if access was revoked."""
        if self._token and not fresh:
            return self._token
        form = {
            "client_id": self._youtube.client_id,
            "client_secret": self._youtube.client_secret,
            "refresh_token": self._youtube.refresh_token,
            "grant_type": "refresh_token",
        }
        answer = await self._client.post(self._youtube.token_url, data=form)
        if answer.status_code in (400, 401, 403):
            raise PermissionError(
                f"the OAuth server refuses the refresh token ({_why(answer)}); authorise the studio anew and set "
                "STUDIO_YOUTUBE_REFRESH_TOKEN"
            )
        answer.raise_for_status()
        self._token = str(answer.json()["access_token"])
        return self._token


def _why(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)
