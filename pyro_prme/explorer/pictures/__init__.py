"""Pictures to play with, for teaching: open this to put one into a notebook, or all of them on a page of one file."""

from pyro_prme.explorer.pictures.playing import PLAYS, Play, play, write_plays

__all__ = ["PLAYS", "Play", "play", "write_plays"]
