"""What the command line and the dashboard see of nodes and locks, before either shows it its own way.

overview.py    one look at all nodes and locks
events.py      what has happened to a lock between two looks
following.py   one look at one lock, and at the line for it
as_json.py     both as JSON values
agreed.py      whether a lock is still the one whose release was agreed to
"""
