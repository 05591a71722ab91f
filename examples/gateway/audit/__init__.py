"""An append-only audit log: every record names the hash of the one before it, one head proves them all.

    log = await AuditLog.open(Path("audit"))
    receipt = await log.append({"model": "small", "tokens": 12})
    await log.close()

`python -m examples.gateway.audit verify FOLDER` reads it again.
"""

from .errors import AuditBrokenError, AuditClosedError, AuditError, AuditFailedError, AuditLockedError
from .log import AuditLog, Durability, Receipt

__all__ = [
    "AuditBrokenError",
    "AuditClosedError",
    "AuditError",
    "AuditFailedError",
    "AuditLockedError",
    "AuditLog",
    "Durability",
    "Receipt",
]
