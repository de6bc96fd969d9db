"""The pages of the monitor, one module each."""
