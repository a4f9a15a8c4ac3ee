"""`python -m autograde` is the command `autograde`."""

from autograde.cli import main

if __name__ == "__main__":
    main()
