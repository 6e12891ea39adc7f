"""The exceptions of regroup. `code` names the kind of error, like the code of a C++ Status."""


class Error(RuntimeError):
    """Something that training cannot go on from. The message names call, object and cause."""

    # every member that runs the same program raises it, too: the job need not try again
    final = False

    def __init__(self, message: str, code: str = "internal error"):
        # paths in it may hold anything
        super().__init__("\n".join(map(shown, message.split("\n"))))
        self.code = code


class Refused(Error, ValueError):
    """An argument was wrong, or the job did not take this process: another model, another
    fingerprint."""


class DeadlineExceeded(Error, TimeoutError):
    """Other members did not do their part in time."""


class Left(Error):
    """This process is no longer a member and nothing is lost: end it with exit status 0."""


class Revoked(BaseException):
    """The generation is over: unwinds a collective section, which runs again. No caller sees it."""


_CLASSES = {"invalid argument": Refused, "deadline exceeded": DeadlineExceeded, "left": Left}


def from_status(code: str, message: str) -> BaseException:
    """The exception for a failed Status."""
    if code == "revoked":
        return Revoked(message)
    return _CLASSES.get(code, Error)(message, code)


def shown(text: object) -> str:
    """Returns the text as one line for a terminal: characters that are not printable, which names
    in a file may hold, are escaped, as \\n or \\x1b."""
    return "".join(c if c.isprintable() or c == " " else ascii(c)[1:-1] for c in str(text))
