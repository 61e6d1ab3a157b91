"""One shard's shell: the loop around the pure ShardCore."""
