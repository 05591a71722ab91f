"""Connect to a chat endpoint, and find out early when there is none."""

from __future__ import annotations

from typing import Any, NamedTuple

import openai
from openai import AsyncOpenAI, DefaultAioHttpClient

from .errors import EndpointError

__all__ = ["Llm", "choose_model", "open_client"]

_ANSWER_TIMEOUT = 120.0
_CHECK_TIMEOUT = 15.0
_CONNECT_TIMEOUT = 5.0


class Llm(NamedTuple):
    """A client and the name of the model to ask it for."""

    client: AsyncOpenAI
    model: str


def open_client(base_url: str, api_key: str | None, *, local: bool = False) -> AsyncOpenAI:
    """Return a client; not for the loop, because reading the certificates takes some 50 ms.

    Args:
        base_url: The address up to and including `/v1`.
        api_key: The key, or None for an endpoint that wants none.
        local: The endpoint is our own child: no proxy stands between, and no certificate.
    """
    http_client = DefaultAioHttpClient(trust_env=False, verify=False) if local else DefaultAioHttpClient()
    return AsyncOpenAI(
        base_url=base_url,
        api_key=api_key or "none",
        max_retries=1,
        timeout=openai.Timeout(_ANSWER_TIMEOUT, connect=_CONNECT_TIMEOUT),
        http_client=http_client,
    )


async def choose_model(client: AsyncOpenAI, model: str | None) -> str:
    """Return the model to ask for, from an endpoint that thereby shows that it is there.

    Args:
        client: The client.
        model: The model's name, or None for the first that the endpoint lists.

    Raises:
        EndpointError: Nobody answers there, or not as an OpenAI-compatible server would.
    """
    base_url = str(client.base_url)
    try:
        page: Any = await client.with_options(timeout=_CHECK_TIMEOUT, max_retries=0).models.list()
        names = [str(entry.id) for entry in page.data]
    except openai.APIConnectionError as error:
        raise _unreachable(base_url, str(error.__cause__ or error)) from error
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise EndpointError(
            f"expected {base_url} to accept the API key, got {error.status_code}; set OPENAI_API_KEY"
        ) from error
    except (openai.OpenAIError, AttributeError, TypeError, ValueError) as error:
        if model is not None and isinstance(error, openai.NotFoundError):
            return model  # some servers list no models
        raise _unreachable(base_url, f"an answer that is no list of models ({_short(error)})") from error
    if model is None and not names:
        raise EndpointError(f"expected {base_url} to list a model, got none; name one with --llm-model")
    return model if model is not None else names[0]


def _unreachable(base_url: str, got: str) -> EndpointError:
    return EndpointError(
        f"expected an OpenAI-compatible server at {base_url}, got {got}; start it, correct --base-url or "
        "OPENAI_BASE_URL, or unset them to be answered by the built-in extractive answerer"
    )


def _short(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200] or type(error).__name__
