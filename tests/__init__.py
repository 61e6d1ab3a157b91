"""The tests: they mirror the rooms; sim, golden, end_to_end and house stand beside them."""
