"""One shard as a value: inputs in, batches and answers out. Driven live by the engine, in simulation by the simulator."""
