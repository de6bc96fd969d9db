"""A program for a command phase: it notes its begin and end; its arguments say how it handles SIGTERM."""

import os
import signal
import sys
import time


def note(word: str) -> None:
    with open(os.environ["FAULTS_NOTES"] + "/notes.txt", "a") as file:
        file.write(f"{word} {os.getpid()} {sys.argv[3]}\n")


if __name__ == "__main__":
    if sys.argv[1] == "exits_with_255":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(255))
    note("begin")
    time.sleep(float(sys.argv[2]))
    note("end")
    print("program")
