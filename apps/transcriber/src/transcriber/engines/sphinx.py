"""The engine pocketsphinx: recognition without network, by the en-us model in its wheel.

Each chunk is decoded in a process of its own (`python -m transcriber.engines.sphinx CHUNK`): one decoder uses one core.
"""

import subprocess
import sys
import wave
from io import BytesIO
from pathlib import Path

import msgspec

from transcriber.captions import Segment
from transcriber.problems import Problem


def hear(chunk: Path, key: str) -> list[Segment]:
    argv = [sys.executable, "-m", "transcriber.engines.sphinx", str(chunk)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Problem(f"pocketsphinx failed: {said[-300:]}", "resource" if done.returncode < 0 else "unknown")
    return msgspec.json.decode(done.stdout, type=list[Segment])


def decode(chunk: Path) -> list[Segment]:
    """Return the words of a 16 kHz mono WAV file, one segment for each stretch of speech."""
    from pocketsphinx import Decoder, Segmenter

    with wave.open(str(chunk)) as file:
        rate, sound = file.getframerate(), file.readframes(file.getnframes())
    decoder = Decoder(samprate=rate, loglevel="FATAL")
    found: list[Segment] = []
    for speech in Segmenter(sample_rate=rate).segment(BytesIO(sound)):
        decoder.start_utt()
        decoder.process_raw(speech.pcm, full_utt=True)
        decoder.end_utt()
        words = decoder.hyp()
        if words is not None and words.hypstr.strip():
            found.append(Segment(round(speech.start_time, 3), round(speech.end_time, 3), words.hypstr.strip()))
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(decode(Path(sys.argv[1]))))
