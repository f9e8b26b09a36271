"""A web page that shows nodes and locks live, for `aioredlock-ng dashboard` and for users' applications.

table.py   the rows of one look, and what has changed since the look before
feed.py    one look at a time for all that watch, and their streams
access.py  sign-in, sessions, and which requests come from the page itself
site.py    framework-independent request handling, and what FastAPI and aiohttp share to serve the page
static/    the page: HTML, a style sheet, modules of JavaScript; no build step, nothing from elsewhere
"""
