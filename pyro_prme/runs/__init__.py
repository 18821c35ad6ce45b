"""Fits in a folder: checkpoints, one writer at a time, and the long fit with its progress bar."""
