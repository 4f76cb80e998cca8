"""A server that replies to each command with the next of the bytes that it was given."""

import contextlib
import socket
import threading


def commands(file):
    """The commands that arrive, as lists of arguments."""
    while line := file.readline():
        args = []
        for _ in range(int(line[1:])):
            length = int(file.readline()[1:])
            args.append(file.read(length))
            file.read(2)
        yield args


@contextlib.contextmanager
def scripted(*replies):
    """Its address. It replies to the greeting by itself, and closes the connection when it has no more to say."""
    left = list(replies)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as file:
                    for args in commands(file):
                        if args[0] == b"HELLO":
                            connection.sendall(b"%0\r\n")
                        elif left:
                            connection.sendall(left.pop(0))
                        else:
                            break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # It wakes a thread that accepts, which closing does not.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
