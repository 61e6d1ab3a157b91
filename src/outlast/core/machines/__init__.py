"""One file per kind of operation: what may happen to it, and what that writes."""
