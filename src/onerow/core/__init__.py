"""Pure: what a task is and what may become of it. No input or output, no clock, no threads, no logging."""
