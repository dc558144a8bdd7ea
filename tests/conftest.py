"""What all tests need of the process that runs them."""

import signal


def pytest_configure() -> None:
    """SIGINT interrupts, as in a terminal: a shell's background job ignores it, and so would every child of one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
