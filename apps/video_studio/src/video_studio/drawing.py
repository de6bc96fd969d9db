"""Generated pictures: sky, sun or moon, and waves; deterministic for a title and scene."""

import math
import random

from PIL import Image, ImageColor, ImageDraw, ImageFilter, ImageOps

from video_studio.settings import Look

_OVERSIZE = 1.12  # margin for camera movement
_WAVES = 5
# Palettes by time of day: the sky at the top and at the horizon, the sea far and near, the light.
_PALETTES = (
    ("#0b1d3a", "#5b9bc8", "#2f6690", "#0c2740", "#fdf6e3"),
    ("#2b1b4d", "#e88a6a", "#7a5488", "#1f1636", "#ffe8c2"),
    ("#0f5563", "#a9dcdc", "#2f8585", "#093039", "#fffbe6"),
    ("#4a2338", "#f4b06a", "#8a4a4c", "#2a1525", "#fff1d0"),
    ("#223767", "#c3d2ea", "#5672a6", "#14213f", "#ffffff"),
    ("#17423a", "#c5e6b0", "#438a63", "#0c2821", "#fffde0"),
)


def draw_scene(title: str, number: int, look: Look) -> Image.Image:
    """Draw one picture, slightly wider than a frame."""
    dice = random.Random(f"{title}/{number}")
    width, height = round(look.width * _OVERSIZE), look.height
    above, horizon_sky, far, near, light = _palette(title, number)
    picture = _sky(width, height, above, horizon_sky)
    horizon = height * dice.uniform(0.46, 0.54)
    _light(picture, dice, light, horizon)
    for wave in range(_WAVES):
        depth = (wave + 1) / _WAVES
        level = horizon + (height - horizon) * (depth - 1 / _WAVES) * 0.95
        _wave(picture, dice, level, depth, _between(far, near, wave / (_WAVES - 1)))
    return picture


def card(title: str, look: Look) -> Image.Image:
    """Draw a background for titles."""
    above, horizon_sky, far, near, _ = _palette(title, 0)
    picture = _sky(look.width, look.height, above, _between(above, horizon_sky, 0.35))
    dice = random.Random(f"{title}/card")
    for wave in range(3):
        _wave(
            picture, dice, look.height * (0.74 + 0.09 * wave), 0.5 + 0.2 * wave, _between(far, near, 0.6 + 0.2 * wave)
        )
    return picture


def _palette(title: str, number: int) -> tuple[str, str, str, str, str]:
    return _PALETTES[(random.Random(title).randrange(len(_PALETTES)) + number) % len(_PALETTES)]


def _sky(width: int, height: int, above: str, below: str) -> Image.Image:
    shades = Image.linear_gradient("L").resize((width, height), Image.Resampling.BICUBIC)
    return ImageOps.colorize(shades, above, below)


def _light(picture: Image.Image, dice: random.Random, colour: str, horizon: float) -> None:
    """Draw a sun or moon with a glow above the horizon."""
    radius = picture.height * dice.uniform(0.07, 0.12)
    x, y = picture.width * dice.uniform(0.2, 0.8), horizon - radius * dice.uniform(0.6, 2.6)
    small = (picture.width // 4, picture.height // 4)
    glow = Image.new("L", small, 0)
    ImageDraw.Draw(glow).ellipse(_round(x / 4, y / 4, radius / 4 * 2.2), fill=130)
    glow = glow.filter(ImageFilter.GaussianBlur(radius / 4)).resize(picture.size, Image.Resampling.BICUBIC)
    picture.paste(Image.new("RGB", picture.size, colour), mask=glow)
    disc = Image.new("L", (picture.width * 2, picture.height * 2), 0)
    ImageDraw.Draw(disc).ellipse(_round(x * 2, y * 2, radius * 2), fill=255)
    picture.paste(Image.new("RGB", picture.size, colour), mask=disc.resize(picture.size, Image.Resampling.BILINEAR))


def _wave(picture: Image.Image, dice: random.Random, level: float, depth: float, colour: str) -> None:
    """Draw waves down to the lower edge; drawn large and scaled down to smooth the edges."""
    width, height = picture.size
    lengths = [(dice.uniform(0.5, 1.3) / depth, dice.uniform(0, math.tau), 0.6**n) for n in range(3)]
    swell = height * 0.022 * (0.5 + depth)
    points = []
    for x in range(0, width * 2 + 8, 8):
        rise = sum(part * math.sin(x / (2 * width) * math.tau * 2 / length + at) for length, at, part in lengths)
        points.append((x, (level + swell * rise) * 2))
    mask = Image.new("L", (width * 2, height * 2), 0)
    ImageDraw.Draw(mask).polygon([*points, (width * 2, height * 2), (0, height * 2)], fill=255)
    picture.paste(Image.new("RGB", picture.size, colour), mask=mask.resize(picture.size, Image.Resampling.BILINEAR))


def _round(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return (x - radius, y - radius, x + radius, y + radius)


def _between(one: str, other: str, share: float) -> str:
    """Interpolate between two colours."""
    pairs = zip(ImageColor.getrgb(one)[:3], ImageColor.getrgb(other)[:3], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)
