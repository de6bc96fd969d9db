"""The program that a worker runs for each job: python main.py URL --engine ENGINE [flags]"""

import os
import sys

from transcriber.program import main

if __name__ == "__main__":
    os.umask(0o027)  # files 0640, also if it is started by hand
    sys.exit(main(sys.argv[1:]))
