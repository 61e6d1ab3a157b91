"""What users import. It knows the protocol and nothing of the server."""
