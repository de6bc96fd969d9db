"""Inboxes: where tasks arrive from outside, and what a message can ask for.

from onerow.inboxes import FolderInbox, AddTasks, Addition
"""

from onerow.core.addition import Addition
from onerow.core.messages import AddTasks, BadMessage, CancelTask, FindTask, Message, Request, SendSignal
from onerow.inboxes.folder import FolderInbox, drop
from onerow.inboxes.signatures import GitHub, Scheme, StandardWebhooks, Stripe
from onerow.inboxes.sqs import SqsInbox
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
    "StandardWebhooks",
    "Stripe",
    "WebhookInbox",
    "drop",
]
