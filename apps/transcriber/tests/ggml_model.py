"""A model for whisper.cpp from the weights of faster-whisper: the same numbers under the names and in the order of ggml."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_NORM = {"weight": "gamma", "bias": "beta"}


def write_ggml(source: Path, target: Path) -> Path:
    """Write a multilingual Whisper of CTranslate2's format, 16-bit, as a file of ggml's format."""
    from faster_whisper.feature_extractor import FeatureExtractor

    found = _variables((source / "model.bin").read_bytes())
    tokens = _tokens(json.loads((source / "tokenizer.json").read_text("utf-8")))
    filters = FeatureExtractor(feature_size=80).mel_filters.astype("<f4")
    words, state = found["decoder/embeddings/weight"].shape
    hears, says = found["encoder/position_encodings/encodings"], found["decoder/position_encodings/encodings"]
    heads, layers = int(found["encoder/num_heads"]), _layers(found, "encoder")
    with target.open("wb") as file:
        numbers = [len(hears), state, heads, layers, len(says), state, heads, _layers(found, "decoder")]
        file.write(struct.pack("<12i", 0x67676D6C, words, *numbers, 80, 1))
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            file.write(struct.pack("<i", len(token)) + token)
        for name, values in _tensors(found, layers):
            _write(file, name, values)
    return target


def _variables(body: bytes) -> dict[str, Any]:
    """Return the variables of CTranslate2's model.bin by name."""
    import numpy as np

    at = 0

    def take(form: str) -> int:
        nonlocal at
        at += struct.calcsize(form)
        return int(struct.unpack_from(form, body, at - struct.calcsize(form))[0])

    def text() -> str:
        nonlocal at
        length = take("<H")
        at += length
        return body[at - length : at - 1].decode()

    assert take("<I") == 6
    assert text() == "WhisperSpec"
    take("<I")
    found = {}
    for _ in range(take("<I")):
        name = text()
        shape = [take("<I") for _ in range(take("<B"))]
        kind, size = take("<B"), take("<I")
        found[name] = np.frombuffer(body, _TYPES[kind], size // np.dtype(_TYPES[kind]).itemsize, at).reshape(shape)
        at += size
    return found


def _tokens(tokenizer: dict[str, Any]) -> list[bytes]:
    """Return the tokens as bytes, without the special ones; GPT-2's vocabulary writes each byte as a printable letter."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}
    special = {each["id"] for each in tokenizer["added_tokens"]}
    vocabulary = sorted((number, token) for token, number in tokenizer["model"]["vocab"].items())
    return [bytes(byte_of[letter] for letter in token) for number, token in vocabulary if number not in special]


def _layers(found: dict[str, Any], part: str) -> int:
    return len(
        {
            name.split("/")[1]
            for name in found
            if name.startswith(f"{part}/layer_") and "layer_norm" not in name.split("/")[1]
        }
    )


def _tensors(found: dict[str, Any], layers: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors with OpenAI's names."""
    for part, norm in (("encoder", "ln_post"), ("decoder", "ln")):
        yield f"{part}.positional_embedding", found[f"{part}/position_encodings/encodings"]
        for kind, own in _NORM.items():
            yield f"{part}.{norm}.{kind}", found[f"{part}/layer_norm/{own}"]
        for number in range(layers):
            for name, values in _block(
                {key: found[f"{part}/layer_{number}/{key}"] for key in _keys(found, part, number)}
            ):
                yield f"{part}.blocks.{number}.{name}", values
    yield "decoder.token_embedding.weight", found["decoder/embeddings/weight"]
    for name in ("conv1", "conv2"):
        yield f"encoder.{name}.weight", found[f"encoder/{name}/weight"]
        yield f"encoder.{name}.bias", found[f"encoder/{name}/bias"].reshape(-1, 1)


def _keys(found: dict[str, Any], part: str, number: int) -> list[str]:
    prefix = f"{part}/layer_{number}/"
    return [name.removeprefix(prefix) for name in found if name.startswith(prefix)]


def _block(given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    norms = {"attn_ln": "self_attention", "cross_attn_ln": "attention", "mlp_ln": "ffn"}
    for norm, part in norms.items():
        if f"{part}/layer_norm/gamma" in given:
            for kind, own in _NORM.items():
                yield f"{norm}.{kind}", given[f"{part}/layer_norm/{own}"]
    for kind in ("weight", "bias"):
        first, second = given[f"ffn/linear_0/{kind}"], given[f"ffn/linear_1/{kind}"]
        yield from ((f"mlp.0.{kind}", first), (f"mlp.2.{kind}", second))
        parts = given[f"self_attention/linear_0/{kind}"]
        third = len(parts) // 3
        attention = {
            "attn.query": parts[:third],
            "attn.key": parts[third : 2 * third],
            "attn.value": parts[2 * third :],
            "attn.out": given[f"self_attention/linear_1/{kind}"],
        }
        if f"attention/linear_0/{kind}" in given:
            both = given[f"attention/linear_1/{kind}"]
            attention |= {
                "cross_attn.query": given[f"attention/linear_0/{kind}"],
                "cross_attn.key": both[: len(both) // 2],
                "cross_attn.value": both[len(both) // 2 :],
                "cross_attn.out": given[f"attention/linear_2/{kind}"],
            }
        for name, values in attention.items():
            if (kind, name.rpartition(".")[2]) != ("bias", "key"):  # Whisper's keys have none
                yield f"{name}.{kind}", values


def _write(file: BinaryIO, name: str, values: Any) -> None:
    # ggml takes matrices in 16 bits, and all else in 32.
    short = values.ndim > 1 and not name.endswith(("positional_embedding", ".bias"))
    file.write(struct.pack("<3i", values.ndim, len(name), int(short)))
    file.write(struct.pack(f"<{values.ndim}i", *reversed(values.shape)) + name.encode())
    file.write(values.astype("<f2" if short else "<f4").tobytes())
