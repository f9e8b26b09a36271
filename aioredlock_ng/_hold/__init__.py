"""A lock that was won: its holding, the watchdog that extends it, and the body that runs under it."""
