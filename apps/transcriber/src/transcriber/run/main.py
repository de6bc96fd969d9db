"""The program that a worker runs for each job: python main.py URL --engine ENGINE [flags]"""

import sys

from transcriber.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
