"""A web page that shows nodes and locks live, for `aioredlock-ng dashboard` and for users' applications.

wire.py      what goes to the page: values to JSON
table.py     the rows of one look, and what has changed since the look before
followed.py  a lock whose own page is open
feed.py      one look at a time for all that watch, and their streams
access.py    sign-in, sessions, and which requests come from the page itself
releasing.py a lock that is released from the page
site.py      framework-independent request handling: a request in, an answer out
page.py      what FastAPI and aiohttp share to serve the page
overview.py  one look at all nodes and locks, which `status` and `watch` take, too
following.py one look at one lock, and at the queue for it
changes.py   what has happened to a lock between two looks, which `trace` tells, too
as_json.py   an overview for programs
agreed.py    whether a lock is still the one whose release was agreed to
static/      the page: HTML, a style sheet, modules of JavaScript; no build step, nothing from elsewhere
"""
