"""What goes wrong with requests and clients. An argument that cannot be right is a ValueError, TypeError or BufferError."""

import enum


class Executed(enum.Enum):
    """Whether a server has executed a request."""

    NO = "no"
    """It has not, and will not."""
    UNKNOWN = "unknown"
    """It was sent and no reply came: it may have been executed, or may still be."""
    YES = "yes"
    """The server has replied."""


class Error(Exception):
    """What all others derive from."""

    executed: Executed = Executed.NO
    """Whether the server has executed the request."""


class ReplyError(Error):
    """The server has replied with an error, which is the text."""

    executed = Executed.YES

    @property
    def code(self) -> str:
        """The first word, e.g. WRONGTYPE."""
        return str(self).partition(" ")[0]


class TooSmallError(Error):
    """The string does not fit into the buffer."""

    executed = Executed.YES

    def __init__(self, text: str, needed: int) -> None:
        super().__init__(text, needed)
        self.needed = needed
        """The string's length in bytes."""

    def __str__(self) -> str:
        return self.args[0]


class TooLargeError(Error):
    """The reply takes more than the client's reply_bytes_max, and nothing of it was kept."""

    executed = Executed.YES


class LostError(Error, ConnectionError):
    """The connection was lost, and the request could not be sent again."""


class TimedOutError(Error, TimeoutError):
    """The request took longer than the client's request_timeout."""


class CancelledError(Error):
    """The caller has cancelled the request."""


class RefusedError(Error, ConnectionError):
    """The server lets nobody in: wrong password, wrong protocol, too many clients."""


class RedirectedError(Error):
    """Another server has the key, and the request cannot be sent there: send it again."""


class FullError(Error):
    """Too many requests or bytes are in flight: ask for results, or wait, and try again."""


class ClosedError(Error):
    """The client was closed, or belongs to the process before a fork."""


class ReleasedError(Error):
    """The request was released."""


class SetupError(Error):
    """The client could not be set up: certificates, descriptors, threads."""


class UnknownOutcomeError(Error):
    """It is unknown whether the server has executed the request."""

    executed = Executed.UNKNOWN


class LostUnknownError(UnknownOutcomeError, LostError):
    """The connection was lost after the request was sent, and it is not known to be read-only."""


class TimedOutUnknownError(UnknownOutcomeError, TimedOutError):
    """The request was sent, and took longer than the client's request_timeout."""


class CancelledUnknownError(UnknownOutcomeError, CancelledError):
    """The caller has cancelled the request after it was sent."""


class ClosedUnknownError(UnknownOutcomeError, ClosedError):
    """The client was closed after the request was handed over."""
