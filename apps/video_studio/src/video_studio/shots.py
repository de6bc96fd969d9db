"""The frames of a film: a title card, a shot per scene with its caption, an end card, with cross-fades."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from PIL import Image, ImageFilter, ImageOps

from video_studio import drawing
from video_studio.fonts import Fonts
from video_studio.lettering import Lettering
from video_studio.script import END_SECONDS, TITLE_SECONDS, Scene, Script
from video_studio.settings import Look

_FADE = 0.5  # seconds of a cross-fade
_TRAVEL = 0.12  # margin of a picture around the frame, for camera movement
_DIM = (255, 255, 255, 190)


class Words(msgspec.Struct):
    """Text over a picture: the non-empty part of the image, and the position of its corner."""

    page: Image.Image
    corner: tuple[int, int]

    @classmethod
    def of(cls, page: Image.Image) -> "Words":
        box = page.getchannel("A").getbbox() or (0, 0, 1, 1)
        return cls(page.crop(box), (box[0], box[1]))


class Shot(msgspec.Struct):
    """A picture, the text over it, its length in frames, and the camera movement."""

    picture: Image.Image
    words: Words
    frames: int
    leftwards: bool


class Shots:
    """All shots of one film; `frames` is their number; iteration yields raw RGB frames."""

    def __init__(self, script: Script, pictures: Sequence[Path], look: Look, font: Path | None) -> None:
        self._look = look
        self._plain, self._bold = Lettering(Fonts(font)), Lettering(Fonts(font, bold=True))
        pace = look.seconds / script.seconds if look.seconds else 1.0
        self._fade = max(1, round(min(_FADE, _FADE * pace) * look.fps))
        self._shots = [self._title(script, pace)]
        shares = _share_out(pictures, len(script.scenes))
        for number, (scene, some) in enumerate(zip(script.scenes, shares, strict=True)):
            words = self._caption(scene)
            for picture in some:
                frames = self._frames(scene.seconds * pace / len(some))
                self._shots.append(Shot(_covering(picture, look), words, frames, bool(number % 2)))
        self._shots.append(self._end(script, pace))

    @property
    def missing(self) -> str:
        """Return the letters that no installed font has."""
        return "".join(dict.fromkeys(self._plain.missing + self._bold.missing))

    def __len__(self) -> int:
        return sum(shot.frames for shot in self._shots)

    def __iter__(self) -> Iterator[bytes]:
        before: Shot | None = None
        for shot in self._shots:
            for number in range(shot.frames):
                frame = self._frame(shot, number)
                if before is not None and number < self._fade:
                    # The previous shot keeps moving while it fades.
                    leaving = self._frame(before, before.frames + number)
                    frame = Image.blend(leaving, frame, (number + 1) / (self._fade + 1))
                yield frame.tobytes()
            before = shot

    def _frames(self, seconds: float) -> int:
        return max(self._fade + 1, round(seconds * self._look.fps))

    def _frame(self, shot: Shot, number: int) -> Image.Image:
        # The camera moves by whole pixels: cropping costs 1/30 of scaling and does not jitter.
        room = shot.picture.width - self._look.width
        travel = min(room, shot.frames + self._fade)
        along = round(travel * number / (shot.frames + self._fade))
        x = (room + travel) // 2 - along if shot.leftwards else (room - travel) // 2 + along
        frame = shot.picture.crop((x, 0, x + self._look.width, self._look.height))
        frame.paste(shot.words.page, shot.words.corner, shot.words.page)
        return frame

    # ── text ──

    def _title(self, script: Script, pace: float) -> Shot:
        look, page = self._look, self._page()
        margin = look.width * 0.10
        room = look.width - 2 * margin
        title = self._bold.prepare(script.title)
        size, lines = self._bold.fit(title, room, 3, look.height // 7, look.height // 16)
        below = self._plain.prepare(script.description)
        small = max(8, look.height // 22)
        more = self._plain.lines(below, small, room, 2) if below else []
        y = look.height * 0.46 - (len(lines) - 1) * size * 0.6
        for line in lines:
            self._bold.write(page, (margin, y), line, size)
            y += size * 1.2
        _bar(page, (margin, y - size * 0.75), look.width * 0.08, max(2, look.height // 180))
        y += small * 0.6
        for line in more:
            self._plain.write(page, (margin, y), line, small, _DIM)
            y += small * 1.4
        return Shot(drawing.card(script.title, look), Words.of(page), self._frames(TITLE_SECONDS * pace), True)

    def _caption(self, scene: Scene) -> Words:
        look, page = self._look, self._page()
        margin, small = look.width * 0.06, max(8, look.height // 20)
        room = look.width - 2 * margin
        heading = self._bold.prepare(scene.title)
        size, headings = self._bold.fit(heading, room, 1, look.height // 14, look.height // 24)
        lines = self._plain.lines(self._plain.prepare(scene.caption), small, room, 3)
        tall = size * 1.35 + len(lines) * small * 1.35
        top = look.height * 0.94 - tall
        y = top + size
        for line in headings:
            self._bold.write(page, (margin, y), line, size)
        y += size * 0.3 + small * 1.1
        for line in lines:
            self._plain.write(page, (margin, y), line, small, (255, 255, 255, 235))
            y += small * 1.35
        ground = _shade(look, top - look.height * 0.12)
        ground.alpha_composite(_shadow(page, max(1, look.height // 180)))
        ground.alpha_composite(page)
        return Words.of(ground)

    def _end(self, script: Script, pace: float) -> Shot:
        look, page = self._look, self._page()
        size = max(10, look.height // 18)
        line = self._bold.lines(self._bold.prepare(script.title), size, look.width * 0.8, 1)[0]
        x = (look.width - self._bold.width(line, size)) / 2
        self._bold.write(page, (x, look.height * 0.5), line, size)
        _bar(page, ((look.width - look.width * 0.08) / 2, look.height * 0.54), look.width * 0.08, look.height // 180)
        return Shot(drawing.card(script.title, look), Words.of(page), self._frames(END_SECONDS * pace), False)

    def _page(self) -> Image.Image:
        return Image.new("RGBA", (self._look.width, self._look.height), (255, 255, 255, 0))


def _covering(path: Path, look: Look) -> Image.Image:
    """Crop a picture to the frame's aspect ratio, slightly larger than the frame, with its orientation applied."""
    with Image.open(path) as found:
        upright = ImageOps.exif_transpose(found)
        assert upright is not None
        size = (round(look.width * (1 + _TRAVEL)), look.height)
        rgba = upright.convert("RGBA")
        ground = Image.new("RGBA", rgba.size, (16, 18, 24, 255))
        ground.alpha_composite(rgba)
        return ImageOps.fit(ground.convert("RGB"), size, Image.Resampling.LANCZOS)


def _share_out(pictures: Sequence[Path], scenes: int) -> list[list[Path]]:
    """Assign pictures to scenes in order: all of them if there are enough, else some are repeated."""
    if len(pictures) < scenes:
        return [[pictures[number % len(pictures)]] for number in range(scenes)]
    bounds = [round(number * len(pictures) / scenes) for number in range(scenes + 1)]
    return [list(pictures[start:end]) for start, end in pairwise(bounds)]


def _shade(look: Look, top: float) -> Image.Image:
    """Return an overlay that darkens toward the lower edge, so that white text is readable."""
    height = look.height - max(0, round(top))
    fall = Image.linear_gradient("L").resize((look.width, height)).point(lambda light: min(165, int(light * 1.2)))
    mask = Image.new("L", (look.width, look.height), 0)
    mask.paste(fall, (0, look.height - height))
    shade = Image.new("RGBA", (look.width, look.height), (6, 8, 14, 0))
    shade.putalpha(mask.filter(ImageFilter.GaussianBlur(2)))
    return shade


def _shadow(page: Image.Image, reach: int) -> Image.Image:
    """Return a soft dark shadow around text, for light pictures."""
    grown = page.getchannel("A").filter(ImageFilter.GaussianBlur(reach)).point(lambda light: min(190, light * 2))
    shadow = Image.new("RGBA", page.size, (6, 8, 14, 0))
    shadow.putalpha(grown)
    return shadow


def _bar(page: Image.Image, at: tuple[float, float], width: float, height: int) -> None:
    page.paste((255, 255, 255, 230), (round(at[0]), round(at[1]), round(at[0] + width), round(at[1]) + max(1, height)))
