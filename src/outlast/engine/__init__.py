"""What moves: owns the shard, commits its batches, gives its answers to those who wait."""
