"""What crosses the wire. The requests and replies themselves are the catalogue in ``outlast.core.inputs``."""
