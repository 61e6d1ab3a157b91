"""What every test shares: how hypothesis draws."""

import os

from hypothesis import HealthCheck, settings

# No deadline: the machine may be busy, and a law does not become false by being slow. In CI the same cases are drawn
# each time, so that a red build can be repeated; by hand new ones are, so that something is learned.
settings.register_profile("by_hand", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("by_hand"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "by_hand")
