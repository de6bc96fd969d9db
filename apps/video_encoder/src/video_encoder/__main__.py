"""python -m video_encoder"""

from video_encoder.cli import main

main(prog_name="encoder")
