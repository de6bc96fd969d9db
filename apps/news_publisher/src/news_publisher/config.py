"""The configuration, from the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from news_publisher.discord import API, BotDiscord, Discord
from news_publisher.mongodb_queue import DEFAULT_URL
from news_publisher.publisher import OnDoubt
from onerow import BadInput


@dataclass(frozen=True)
class Config:
    """The configuration; its repr shows no secrets."""

    mongo_url: str = field(default=DEFAULT_URL, repr=False)
    collection: str = "task_queue"
    webhook: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    channel: str = ""
    api: str = API
    on_doubt: OnDoubt = "hold"
    max_retries: int = 3
    lease: str = "30s"

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> "Config":
        """Read the variables NEWS_…; raise BadInput that names a wrong variable."""
        known = os.environ if environment is None else environment

        def said(name: str, default: str = "") -> str:
            return known.get(f"NEWS_{name}", "").strip() or default

        on_doubt = said("ON_DOUBT", "hold")
        if on_doubt not in ("hold", "resend"):
            raise BadInput(f"NEWS_ON_DOUBT must be hold or resend, not {on_doubt!r}", field="NEWS_ON_DOUBT")
        retries = said("MAX_RETRIES", "3")
        if not retries.isdigit():
            raise BadInput(f"NEWS_MAX_RETRIES must be a whole number, not {retries!r}", field="NEWS_MAX_RETRIES")
        return cls(
            mongo_url=said("MONGO_URL", DEFAULT_URL),
            collection=said("COLLECTION", "task_queue"),
            webhook=said("DISCORD_WEBHOOK"),
            token=said("DISCORD_TOKEN"),
            channel=said("DISCORD_CHANNEL"),
            api=said("DISCORD_API", API),
            on_doubt=cast(OnDoubt, on_doubt),
            max_retries=int(retries),
            lease=said("LEASE", "30s"),
        )

    def discord(self) -> Discord:
        """Return the Discord client: a bot if there is a token, else the webhook."""
        if self.token:
            if not self.channel:
                raise BadInput("NEWS_DISCORD_TOKEN needs NEWS_DISCORD_CHANNEL, the id of the channel to post to")
            return BotDiscord(self.token, self.channel, api=self.api)
        if not self.webhook:
            raise BadInput(
                "nowhere to post to: set NEWS_DISCORD_WEBHOOK to a webhook's URL, "
                "or NEWS_DISCORD_TOKEN and NEWS_DISCORD_CHANNEL for a bot"
            )
        return Discord(self.webhook)
