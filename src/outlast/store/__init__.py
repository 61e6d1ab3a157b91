"""Where it is kept: one narrow interface, several stores behind it."""
