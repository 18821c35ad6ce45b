"""What tries to break the package: killed processes, hostile files, shared folders, full disks, threads, long streams.

Each module has ``trial(seed, number, folder)``, which is one attempt and gives an `Outcome`; the same seed and number
make the same attempt. ``make test`` runs a few of each, ``make soak`` runs them for as long as it is told.
"""
