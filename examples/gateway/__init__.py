"""An OpenAI-compatible gateway with two paths: a hot one that only checks and forwards, and one beside it
that counts tokens and keeps the audit log.

Run it from the repository: `python -m examples.gateway --config gateway.toml`; docs/gateway.md has the rest.
"""
