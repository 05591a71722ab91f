"""The parts of `examples/rag.py`: documents in, cited answers out.

Data flows one way: `sources` finds documents, `parse` and `chunk` cut them up, `encoder` and `index`
make them searchable, `retrieval` makes them tools for a model, and `answerer` is the model when there is no
other. `steps` lists everything that leaves the event loop; `job` puts the parts together, hybridrt's `Agent`
among them, and `report` says what it cost.
"""
