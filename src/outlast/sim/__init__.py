"""A whole cluster in one thread, from one seed: what is simulated here is the ShardCore that acknowledges in production."""
