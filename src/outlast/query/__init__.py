"""The filter language of lists: text to a checked predicate, and whether a row matches one. It knows no database."""
