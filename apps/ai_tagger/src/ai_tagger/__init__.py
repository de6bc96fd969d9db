"""Tags synced posts in batches with a language model or offline, for many workspaces in one PostgreSQL database.

`ai_tagger.posts` syncs posts and tags them again, `ai_tagger.report` reads the report, `ai_tagger.database` sets up.
"""

__version__ = "0.1.0"
