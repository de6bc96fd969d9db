"""A tagger that runs without network."""
