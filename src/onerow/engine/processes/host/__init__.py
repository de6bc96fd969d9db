"""The host process: a small standard-library program that is the ancestor of every child of one worker.

It is run by file path (`python -I -S .../host/__main__.py`) and never imports the rest of onerow,
so that it starts fast, stays small and forks cheaply. Inside, imports are relative only.

    worker ── host ──┬── reaper ── child ── its descendants
                     └── reaper ── child ── its descendants

A reaper runs one child at a time and is a subreaper: every orphaned descendant of its child, daemonised
or not, becomes a child of the reaper. So the kernel itself says when the whole tree has ended.
The host process forks reapers and inherits the children of those that are killed.
"""
