"""A server that turns: relays to a real one until a word is asked for, then answers with too much.

``python liar.py PORT WORD HEAD BODY [SOCKET]``: HEAD and BODY are bytes in Python's notation.  It says HEAD
once, and BODY for ever.  When it listens, on a unix socket if one is named, it prints its own URL.  It is a
process of its own, so that only its peer's memory is measured.
"""

from __future__ import annotations

import ast
import contextlib
import socket
import sys
import threading


def lie(peer: socket.socket, head: bytes, body: bytes) -> None:
    """Say too much until the peer has had enough; nothing answers it any more."""
    peer.sendall(head)
    much = body * (65536 // max(1, len(body)) + 1)
    while body:
        peer.sendall(much)
    while peer.recv(65536):
        pass


def serve(peer: socket.socket, port: int, word: bytes, head: bytes, body: bytes) -> None:
    """Relay one connection until the word comes."""
    server = socket.create_connection(("127.0.0.1", port))
    turned = threading.Event()

    def back() -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65536)) and not turned.is_set():
                peer.sendall(data)

    threading.Thread(target=back, daemon=True).start()
    with contextlib.suppress(OSError), server, peer:
        while data := peer.recv(65536):
            if word in data:
                turned.set()
                lie(peer, head, body)
            server.sendall(data)


def main() -> None:
    """Listen, and say where."""
    port, word = int(sys.argv[1]), sys.argv[2].encode()
    head, body = map(ast.literal_eval, sys.argv[3:5])
    if path := sys.argv[5:]:
        listener, url = socket.socket(socket.AF_UNIX), f"unix://{path[0]}"
        listener.bind(path[0])
        listener.listen()
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
    print(url, flush=True)
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=serve, args=(peer, port, word, head, body), daemon=True).start()


if __name__ == "__main__":
    main()
