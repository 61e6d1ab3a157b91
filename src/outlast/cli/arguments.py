"""What a command gets: its parsed arguments."""

import argparse

Arguments = argparse.Namespace
