"""Entry point of the worker process: the same command; the lifeline in its environment marks it as supervised."""

from onerow.cli.main import main

if __name__ == "__main__":
    main(prog_name="onerow")
