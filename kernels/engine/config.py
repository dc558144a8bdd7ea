"""What a model is made of: sizes, the kind of every layer, and the constants that its formulas name.

Three named shapes, and config.json of a checkpoint. A key that decides bytes has no default here.
Source of names and rules: the published `config.json` of Qwen3.5 and transformers 5.24.0 `configuration_qwen3_5.py`.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .errors import KernelError

GDN, ATTN = "gdn", "attn"
LAYER_KINDS = ("attn", "gdn", "hybrid")
ATTENTION_EVERY = 4  # in a hybrid layer i is attention when (i + 1) % 4 == 0
SIZE_MAX = 1 << 20  # of any one size: products of two stay inside int64, of size and head count inside int32
LAYERS_MAX = 1024
CONFIG_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One model. Sizes are in elements; `kinds` holds GDN or ATTN, one a layer."""

    hidden: int
    intermediate: int
    vocab: int
    kinds: tuple[str, ...]
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary: int  # leading elements of a head that are rotated
    rope_theta: float
    eps: float
    tied: bool  # the head is the embedding

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Of the convolution: q, k and v side by side."""
        return 2 * self.key_width + self.value_width

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


#        E     F      layers V       nk  nv  dk   dv   K  Hq  Hkv D    R
SHAPES = {
    "tiny":   (256,  512,   4,  512,    2,  6,  64,  64,  4, 6,  2,  64,  16),
    "mini64": (256,  256,   64, 512,    2,  6,  32,  32,  4, 6,  2,  32,  8),
    "27b":    (5120, 17408, 64, 248320, 16, 48, 128, 128, 4, 24, 4,  256, 64),
}  # fmt: skip
EPS, THETA = 1e-6, 1e7  # of every named shape, as published for 27B


def shape(name: str, *, layers: str, depth: int | None = None) -> Config:
    """A named shape with all layers of one kind, or hybrid; `depth` takes only the first layers. Raises KernelError."""
    if name not in SHAPES:
        raise KernelError(f"shape {name}", "unknown", f"use one of {', '.join(SHAPES)}")
    if layers not in LAYER_KINDS:
        raise KernelError(f"layers {layers}", "unknown", f"use one of {', '.join(LAYER_KINDS)}")
    hidden, intermediate, count, vocab, nk, nv, dk, dv, taps, heads, kv_heads, head_dim, rotary = SHAPES[name]
    depth = count if depth is None else depth
    if not 1 <= depth <= count:
        raise KernelError(f"depth {depth}", f"{name} has {count} layers", f"use 1..{count}")
    kinds = tuple(_kind(layers, i) for i in range(depth))
    return checked(
        f"shape {name}",
        Config(
            hidden=hidden, intermediate=intermediate, vocab=vocab, kinds=kinds, key_heads=nk, value_heads=nv,
            key_dim=dk, value_dim=dv, conv_kernel=taps, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
            rotary=rotary, rope_theta=THETA, eps=EPS, tied=False,
        ),
    )  # fmt: skip


def _kind(layers: str, index: int) -> str:
    if layers != "hybrid":
        return layers
    return ATTN if (index + 1) % ATTENTION_EVERY == 0 else GDN


def checked(where: object, config: Config) -> Config:
    """The same config, if the engine can run it. Raises KernelError."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type is int and not (type(value) is int and 1 <= value <= SIZE_MAX):
            raise KernelError(where, f"{field.name} is {value!r}", f"it must be a whole number in 1..{SIZE_MAX}")
    if not 1 <= len(config.kinds) <= LAYERS_MAX or set(config.kinds) - {GDN, ATTN}:
        what = f"{len(config.kinds)} layers of {sorted(set(config.kinds))}"
        raise KernelError(where, what, f"use 1..{LAYERS_MAX}, each gdn or attn")
    for part, whole in (("key_heads", "value_heads"), ("kv_heads", "heads")):
        a, b = getattr(config, part), getattr(config, whole)
        if b % a:
            raise KernelError(where, f"{whole} {b} is not a multiple of {part} {a}", "such a model does not exist")
    if config.rotary % 2 or config.rotary > config.head_dim:
        what = f"rotary size {config.rotary} of head size {config.head_dim}"
        raise KernelError(where, what, "it must be even and fit")
    if config.conv_kernel < 2:
        raise KernelError(where, "a convolution of one tap has no history", "the engine needs at least two taps")
    for name, low, high in (("eps", 0.0, 1.0), ("rope_theta", 1.0, 1e15)):
        if not low < getattr(config, name) < high:
            raise KernelError(where, f"{name} is {getattr(config, name)!r}", f"it must lie between {low} and {high}")
    return config


def from_folder(folder: Path) -> Config:
    """The config of a checkpoint folder, text-only or multimodal. Raises KernelError with file, key and remedy."""
    path = Path(folder) / "config.json"
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise KernelError(path, f"larger than {CONFIG_BYTES_MAX} bytes", "this is no config.json of a model")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KernelError(path, f"cannot be read ({error.strerror})", "name a checkpoint folder") from error
    except ValueError as error:
        raise KernelError(path, "is not JSON", "fetch the file again") from error
    return from_json(data, where=str(path))


def from_json(data: Any, *, where: str) -> Config:
    """The config that a parsed config.json describes. Raises KernelError."""
    text = _text_part(data, where)
    _supported(text, where)
    rope = _rope(text, where)
    head_dim = _whole(text, "head_dim", where)
    factor = _number(rope, "partial_rotary_factor", where)
    if not 0 < factor <= 1:
        raise KernelError(where, f"partial_rotary_factor is {factor!r}", "it must lie in 0..1")
    tied = data.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    if type(tied) is not bool:
        raise KernelError(where, f"tie_word_embeddings is {tied!r}", "write true or false: it decides what the head is")
    names = {
        "hidden": "hidden_size", "intermediate": "intermediate_size", "vocab": "vocab_size",
        "key_heads": "linear_num_key_heads", "value_heads": "linear_num_value_heads",
        "key_dim": "linear_key_head_dim", "value_dim": "linear_value_head_dim",
        "conv_kernel": "linear_conv_kernel_dim", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
    }  # fmt: skip
    sizes = {mine: _whole(text, theirs, where) for mine, theirs in names.items()}
    return checked(
        where,
        Config(
            **sizes, kinds=_layer_kinds(text, where), head_dim=head_dim, rotary=int(head_dim * factor),
            rope_theta=_number(rope, "rope_theta", where), eps=_number(text, "rms_norm_eps", where), tied=tied,
        ),
    )  # fmt: skip


def _text_part(data: Any, where: str) -> dict[str, Any]:
    """The text model's part: data itself, or `text_config` of a multimodal checkpoint."""
    if not isinstance(data, dict):
        raise KernelError(where, "is not a JSON object", "fetch the file again")
    kind = data.get("model_type")
    if kind == "qwen3_5_text":
        return data
    if kind == "qwen3_5" and isinstance(data.get("text_config"), dict):
        return _text_part({"model_type": "qwen3_5_text", **data["text_config"]}, where)
    what = f"unsupported architecture, model_type {kind!r}"
    raise KernelError(where, what, "use a Qwen3.5 checkpoint (qwen3_5, qwen3_5_text)")


def _supported(text: dict[str, Any], where: str) -> None:
    """Refuses what would run and give other numbers."""
    only = (("hidden_act", "silu", None), ("attention_bias", False, False), ("quantization_config", None, None))
    for key, wanted, absent in only:
        if text.get(key, absent) != wanted:
            what = f"unsupported architecture, {key} is {text.get(key)!r}"
            raise KernelError(where, what, f"only {wanted!r} is supported")


def _rope(text: dict[str, Any], where: str) -> dict[str, Any]:
    """rope_parameters, or the older keys beside the sizes. mRoPE sections do not matter: a text's positions agree."""
    rope = text.get("rope_parameters")
    if rope is None:
        rope = text.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise KernelError(where, "rope_parameters is not an object", "fetch the file again")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise KernelError(where, f"unsupported architecture, rope_type is {kind!r}", "only 'default' is supported")
    older = {key: text[key] for key in ("rope_theta", "partial_rotary_factor") if key in text}
    return {**older, **rope}


def _layer_kinds(text: dict[str, Any], where: str) -> tuple[str, ...]:
    """From `layer_types`, or from `full_attention_interval` where a file has only that."""
    count = _whole(text, "num_hidden_layers", where)
    if count > LAYERS_MAX:
        raise KernelError(where, f"num_hidden_layers is {count}", f"the engine holds {LAYERS_MAX} at most")
    words = text.get("layer_types")
    if words is None:
        every = _whole(text, "full_attention_interval", where)
        return tuple(GDN if (i + 1) % every else ATTN for i in range(count))
    kinds = {"linear_attention": GDN, "full_attention": ATTN}
    if not isinstance(words, list) or len(words) != count or any(word not in kinds for word in words):
        raise KernelError(where, "layer_types does not name every layer", f"write {count} of {', '.join(kinds)}")
    return tuple(kinds[word] for word in words)


def _whole(data: dict[str, Any], key: str, where: str) -> int:
    value = data.get(key)
    if type(value) is not int or not 1 <= value <= SIZE_MAX:
        raise KernelError(where, f"{key} is {value!r}", f"it must be a whole number in 1..{SIZE_MAX}")
    return value


def _number(data: dict[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KernelError(where, f"{key} is {value!r}", "it must be a number")
    return float(value)
