"""Ways of writing things in Pyro, each with what the engine is expected to make of it."""
