"""python -m video_studio"""

from video_studio.cli import main

main(prog_name="studio")
