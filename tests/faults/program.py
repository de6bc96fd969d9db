"""A program for a command phase: notes when it begins and ends; what SIGTERM does to it stands in its arguments."""

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
