"""The parts of `examples/agent_tools.py`: tools, and what stands in for a model and a shop."""
