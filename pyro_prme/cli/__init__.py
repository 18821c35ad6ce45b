"""The command `prme`: files in, topics and scores out."""
