"""Acquiring: the story of one call, its tries, and how it waits between them."""
