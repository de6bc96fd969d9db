"""Who may call which route: roles, credentials, sessions, checks of requests, headers."""
