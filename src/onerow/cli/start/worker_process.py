"""The worker process that a supervisor starts: the same command, told by its lifeline that it is the worker."""

from onerow.cli.main import main

if __name__ == "__main__":
    main(prog_name="onerow")
