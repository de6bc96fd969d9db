"""Draws short clips with ffmpeg, for a demonstration without a camera."""

from pathlib import Path

from video_encoder.programs import ffmpeg

PATTERNS = {
    "test card": "testsrc2=size={size}:rate={rate}",
    "gradients": "gradients=size={size}:rate={rate}:speed=0.04:c0=#103060:c1=#ff8040:c2=#20a080",
    "mandelbrot": "mandelbrot=size={size}:rate={rate}",
}


def draw(
    path: Path,
    *,
    pattern: str = "test card",
    seconds: float = 2,
    size: str = "160x90",
    rate: int = 10,
    sound: bool = True,
) -> Path:
    """Draw a clip with a pattern and a tone; the ending of the name decides the container."""
    picture = PATTERNS[pattern].format(size=size, rate=rate)
    words = ["-f", "lavfi", "-i", picture]
    if sound:
        words += ["-f", "lavfi", "-i", "sine=frequency=330:sample_rate=44100"]
    ffmpeg([*words, "-t", str(seconds), "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"], path)
    return path
