"""A web page that shows nodes and locks live, for `aioredlock-ng dashboard` and for users' applications.

wire.py      what was seen as JSON values: for programs, and for the page
table.py     the rows of one look, and what has changed since the look before
followed.py  one look at one lock and its queue; a lock whose own page is open
feed.py      one look at a time for all that watch, and their streams
access.py    sign-in, sessions, and which requests come from the page itself
releasing.py a lock that is released: what was agreed to must still be so
site.py      framework-independent request handling: a request in, an answer out
page.py      what FastAPI and aiohttp share to serve the page
overview.py  one look at all nodes and locks, which `status` and `watch` take, too
changes.py   what has happened to a lock between two looks, which `trace` tells, too
static/      the page: HTML, a style sheet, modules of JavaScript; no build step, nothing from elsewhere
"""
