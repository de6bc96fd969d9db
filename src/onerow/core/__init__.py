"""Pure domain code: the task and its transitions. No input or output, no clock, no threads, no logging."""
