"""The counters of one worker, in the text form that Prometheus reads; no label holds a key or a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from .admission import Admission
from .breaker import Circuit
from .upstreams import Upstream

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counters of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"namespace": "gateway", "registry": self.registry}
        self.requests = Counter("requests", "Requests, by outcome", ["outcome", "status"], **make)
        self.refusals = Counter("refusals", "Answers of the gateway's own, by code", ["code"], **make)
        self.retries = Counter("retries", "Attempts beyond the first", ["upstream"], **make)
        self.failures = Counter("upstream_failures", "Failed attempts", ["upstream"], **make)
        self.tokens = Counter("tokens", "Tokens counted here", ["kind"], **make)
        self.cost = Counter("cost", "Cost by the price list", **make)
        self.records = Counter("audit_records", "Audit records, by what became of them", ["fate"], **make)
        self.first_byte = Histogram("first_byte_seconds", "Request to first byte", **make)
        self.entropy = Histogram(
            "answer_entropy_bits",
            "Entropy per token of answers",
            buckets=(0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10),
            **make,
        )
        self.running = Gauge("upstream_running", "Requests at an upstream", ["upstream"], **make)
        self.waiting = Gauge("upstream_waiting", "Requests that wait for it", ["upstream"], **make)
        self.open = Gauge("upstream_open", "1 while its breaker is not closed", ["upstream"], **make)
        self.admitted = Gauge("admitted", "Exchanges under way", **make)
        self.admission_limit = Gauge("admission_limit", "How many there may be now", **make)
        self.admission_waiting = Gauge("admission_waiting", "Requests that wait for that", **make)
        self.body_bytes = Gauge("body_bytes", "Bytes of bodies held", **make)
        self.connections = Gauge("connections", "Open connections", **make)

    def text(
        self, upstreams: Sequence[Upstream], admission: Admission, *, body_bytes: int, connections: int
    ) -> bytes:
        """Return all of it; gauges are read at this moment."""
        self.admitted.set(admission.running)
        self.admission_limit.set(admission.limit)
        self.admission_waiting.set(admission.waiting)
        for upstream in upstreams:
            self.running.labels(upstream.name).set(upstream.running)
            self.waiting.labels(upstream.name).set(upstream.waiting)
            self.open.labels(upstream.name).set(upstream.circuit is not Circuit.CLOSED)
        self.body_bytes.set(body_bytes)
        self.connections.set(connections)
        return generate_latest(self.registry)
