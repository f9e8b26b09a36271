"""Acquiring: the story of one call, its attempts, and how it waits between them."""
