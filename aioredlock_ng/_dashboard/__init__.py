"""A web page that shows nodes and locks live, for `aioredlock-ng dashboard` and for users' applications.

wire.py      what goes to the page: values to JSON
table.py     the rows of one look, and what has changed since the look before
followed.py  a lock whose own page is open
feed.py      one look at a time for all that watch, and their streams
access.py    sign-in, sessions, and which requests come from the page itself
releasing.py a lock that is released from the page
site.py      a request in, an answer out: for any web server
static/      the page: HTML, a style sheet, modules of JavaScript; no build step, nothing from elsewhere
"""
