"""Composition: settings, and what is plugged into what. The only room with choices."""
