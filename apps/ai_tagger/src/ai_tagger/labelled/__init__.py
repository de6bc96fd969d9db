"""Posts with the tags that a person gave them; `held_out` was written before the tagger."""
