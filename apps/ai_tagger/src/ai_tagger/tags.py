"""The tags that the app uses unless TAGGER_TAGS names others; the offline tagger knows these."""

TAGS = (
    "technology",
    "food",
    "travel",
    "sports",
    "health",
    "money",
    "entertainment",
    "education",
    "fashion",
    "pets",
)
