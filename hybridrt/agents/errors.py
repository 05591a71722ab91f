"""What an agent may raise. Errors of tools are not among it: the model is told of those."""

from __future__ import annotations

from hybridrt.errors import HybridrtError

__all__ = ["AgentTimeoutError", "ModelError", "lacks_extra"]


class ModelError(HybridrtError):
    """The model's endpoint refused, failed, or broke off in the middle of a reply.

    Attributes:
        status: What the server answered, as in HTTP; None if it did not answer, or broke off.
        started: Always True: the endpoint was asked, and may have counted tokens.
    """

    def __init__(self, *args: object, status: int | None = None, started: bool = True) -> None:
        super().__init__(*args, started=started)
        self.status = status


class AgentTimeoutError(HybridrtError, TimeoutError):
    """A question was not answered within the agent's `timeout`; all that it had started was cancelled."""

    def __init__(self, *args: object, started: bool = True) -> None:
        super().__init__(*args, started=started)


def lacks_extra(error: ModuleNotFoundError) -> ImportError:
    """Return the error that says what to install, of one that names a package which is not there."""
    return ImportError(
        f"hybridrt.agents expects the packages of the extra `agents`, got no {error.name}; "
        "run `pip install 'hybridrt[agents]'`",
        name=error.name,
    )
