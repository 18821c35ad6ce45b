"""The compiled inner loops, each with a form for other devices, and the memory and threads that they share."""

from pyro_prme.kernels.local import LocalStep, local_step

__all__ = ["LocalStep", "local_step"]
