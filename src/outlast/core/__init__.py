"""What a run is and how it moves. Pure: no clock, no chance, no input or output, no event loop."""
