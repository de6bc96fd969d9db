"""Inboxes: messages become rows, then they are acknowledged."""
