"""Programs of the house, called by the Makefile: pins, README, cases, reference pages."""
