"""OpenTelemetry's context crosses to isolates: a span made there is a child of the caller's.

It crosses as between services, by the propagators that are configured: trace context and baggage, unless
`OTEL_PROPAGATORS` in the environment says otherwise. Spans are made in an isolate if a tracer provider was
set there (`isolate_initializer`). Tracing never fails a call.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from hybridrt.isolates.context import Propagator, register

__all__: list[str] = []

logger = logging.getLogger("hybridrt")


def is_active() -> bool:
    """Return True if the program uses OpenTelemetry and there is a span or baggage here."""
    context = sys.modules.get("opentelemetry.context")
    get_current = getattr(context, "get_current", None)  # None while it is being imported
    return get_current is not None and bool(get_current())


def inject() -> dict[str, str] | None:
    """Return the headers that carry the current context; None if it has nothing to carry."""
    headers: dict[str, str] = {}
    try:
        from opentelemetry import propagate

        propagate.inject(headers)
    except Exception:
        logger.debug("the context of OpenTelemetry does not cross to an isolate", exc_info=True)
    return headers or None


def attach(headers: dict[str, Any]) -> None:
    """Make the context that the headers carry the current one."""
    try:
        from opentelemetry import context, propagate

        context.attach(propagate.extract(headers))
    except Exception:
        logger.debug("the context of OpenTelemetry has not crossed to this isolate", exc_info=True)


register(Propagator(is_active=is_active, inject=inject, module=__name__, attach="attach"))
