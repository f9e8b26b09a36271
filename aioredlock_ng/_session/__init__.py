"""The session of a manager: its parts, its background tasks, and its life from start to end."""
