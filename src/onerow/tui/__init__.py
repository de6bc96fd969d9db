"""The terminal monitor, `onerow monitor`. Only this package imports Textual."""
