"""`python -m onerow` is the command `onerow`."""

from onerow.cli import main

if __name__ == "__main__":
    main(prog_name="onerow")
