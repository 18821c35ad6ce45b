"""Counts of words in documents, from every kind of file, and batches of them: open it to read, check, cut or split a
corpus.
"""
