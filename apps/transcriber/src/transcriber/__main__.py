"""python -m transcriber"""

from transcriber.cli import main

main(prog_name="transcriber")
