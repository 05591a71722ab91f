"""Tools and agents, against a server on loopback that speaks the chat completions protocol."""
