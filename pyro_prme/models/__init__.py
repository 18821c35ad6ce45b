"""Pyro programs, and the networks that they are made of: open it to read a model or to swap a part of it."""
