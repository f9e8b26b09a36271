"""The life of a manager, from start to end, and its background tasks."""
