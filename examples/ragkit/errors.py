"""What can go wrong in a correct program: the job ends with a sentence, not with a traceback."""

from __future__ import annotations

__all__ = ["DocumentError", "EndpointError", "ModelError", "RagError", "UsageError"]


class RagError(Exception):
    """Base class of the errors below; the message says what was expected, what came, what to do."""


class DocumentError(RagError):
    """One document cannot be used. The job goes on without it and reports the message."""


class EndpointError(RagError):
    """The chat endpoint cannot be reached or does not speak the protocol."""


class ModelError(RagError):
    """The embedding model is missing, incomplete, altered or of an unknown kind."""


class UsageError(RagError):
    """The job cannot be done as it was asked for."""
