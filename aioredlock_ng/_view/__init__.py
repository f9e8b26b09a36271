"""The state of nodes and locks as people are shown it, on the page as by the commands; decided here, once.

The modules::

overview.py    one look at all nodes and locks
changes.py     one lock, and all that happens to it between two looks
values.py      both as JSON
releasing.py   a lock that is released in spite of its holder
"""
