"""The keeper process: a tiny standard-library program that fathers every child of one worker.

It is run by file path (`python -I -S .../host/__main__.py`) and never imports the rest of onerow,
so that it starts fast, stays small and forks cheaply. Inside, imports are relative only.

    worker ── keeper ──┬── warden ── child ── its descendants
                       └── warden ── child ── its descendants

A warden runs one child at a time and is a subreaper: whatever its child leaves behind, daemonised
or not, becomes the warden's own. "I have no children left" is then the kernel's word, not a guess.
The keeper forks wardens and inherits from those that are killed.
"""
