"""The command as a module: python -m pyro_prme.cli."""

from pyro_prme.cli.entry import main

if __name__ == "__main__":
    main()
