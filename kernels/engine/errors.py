"""The errors of the subject: who is told what, where, and what to do. Caught once, in kernels/__main__.py.

It lies in the engine since an artifact imports nothing outside itself. Every artifact therefore has a class of its own:
tools tell an error of an artifact by its attribute `exit_code`, never by its type.
"""


class KernelError(Exception):
    """Input, files or machine are at fault; str() is `where: what; todo`, and the type's name is the kind."""

    exit_code = 2
    last_word = False  # True: a device is broken, and what its objects print when they end only repeats this

    def __init__(self, where: object, what: str, todo: str):
        super().__init__(str(where), what, todo)
        self.where, self.what, self.todo = str(where), what, todo

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.todo}"


class Refused(KernelError):  # noqa: N818 - a refusal is the contract's word, and no error of the engine
    """The engine will not do this now, and no byte of its state has changed; `reason` is one word for programs."""

    exit_code = 5

    def __init__(self, where: object, what: str, todo: str, *, reason: str):
        super().__init__(where, what, todo)
        self.reason = reason
