"""The pipeline of the tagger, without its phase: `ai_tagger.pipeline` adds it."""

import msgspec

from onerow import Labels, Pipeline


class Job(msgspec.Struct, frozen=True):
    """The payload of a job; the post itself is in the app's table."""

    post_id: str
    if_changed: bool = False
    """Added by a sync: it has nothing to do if the tags are those of the newest text already."""


tagging = Pipeline(
    "tagging",
    payload=Job,
    # Failed jobs have no entry: they are kept.
    keep={"completed": "7d", "cancelled": "7d"},
    labels=Labels(statuses={"waiting": "pending"}, columns=("payload.post_id", "status", "attempt", "run_at", "error")),
)
