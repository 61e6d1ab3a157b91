"""One file per resource; a handler is parse, ask, answer."""
