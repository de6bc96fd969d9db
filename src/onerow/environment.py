"""The environment variable that names the store. Each pytest run imports this module, so it imports nothing."""

VARIABLE = "ONEROW_STORE"

replaces_urls: bool = True
"""Whether the variable replaces a URL in the code. Not in a pytest run: a shell may name a store in production."""
