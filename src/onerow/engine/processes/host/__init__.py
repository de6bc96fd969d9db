"""The host process: a small standard-library program that is the ancestor of every child of one worker.

It is run by file path (`python -I -S .../host/__main__.py`) and never imports the rest of onerow,
so that it starts fast, stays small and forks cheaply. Inside, imports are relative only.

    worker ── host ──┬── reaper ── child ── its descendants
                     └── reaper ── child ── its descendants

A reaper runs one child at a time and is a subreaper: every orphaned descendant of its child, daemonised
or not, becomes a child of the reaper. So the kernel itself says when the whole tree has ended.
The host process forks reapers and inherits the children of those that are killed.

The worker has one socket to the host and one to each reaper; all carry the messages of `frames`:

    to the host      {} with one end of a new socket: fork a reaper on it
    from a reaper    {"reaper": pid}: it runs
    to a reaper      the request of `Program`: start it; {"stop": grace}; {"deadline": time, "grace": seconds}, the first
                     time also with "memory_limit" if the child was started before its attempt
    from a reaper    {"pid"} or {"refused", "errno"}, and when the whole tree has ended
                     {"status", "stopped", "over_memory"}

A closed socket says that the process at its other end has ended, in both directions. The host keeps a copy of each
reaper's end, and closes it after it has ended what a killed reaper left behind.
"""
