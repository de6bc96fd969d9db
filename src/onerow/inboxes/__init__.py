"""Inboxes: where tasks arrive from outside, and what a message can ask for.

from onerow.inboxes import FolderInbox, AddTasks, Addition
"""

from onerow.core.addition import Addition
from onerow.core.messages import AddTasks, BadMessage, CancelTask, FindTask, Message, Request, SendSignal
from onerow.inboxes.folder import FolderInbox, drop
from onerow.inboxes.s3_events import read_s3_event
from onerow.inboxes.signatures import GitHub, Scheme, StandardWebhooks, Stripe
from onerow.inboxes.sqs import SqsInbox
from onerow.inboxes.sqs_notify import SqsNotifier
from onerow.inboxes.webhook import WebhookInbox

__all__ = [
    "AddTasks",
    "Addition",
    "BadMessage",
    "CancelTask",
    "FindTask",
    "FolderInbox",
    "GitHub",
    "Message",
    "Request",
    "Scheme",
    "SendSignal",
    "SqsInbox",
    "SqsNotifier",
    "StandardWebhooks",
    "Stripe",
    "WebhookInbox",
    "drop",
    "read_s3_event",
]
