"""What runs inside the fresh processes.

A child imports only what it measures, takes its arguments as one JSON object, and prints one line
of JSON. It knows nothing of the other candidates or of the comparison.
"""
