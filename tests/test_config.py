"""The config: named shapes, config.json of either kind of checkpoint, and what is refused."""

import copy
import json
from pathlib import Path

import pytest

from kernels.engine import config
from kernels.engine.errors import KernelError

FIXTURE = Path(__file__).parents[1] / "kernels" / "fixtures" / "hf_small"
PUBLISHED = json.loads((FIXTURE / "config.json").read_text())


def changed(**keys: object) -> dict[str, object]:
    """The fixture's config.json with some keys set; None removes one."""
    data = copy.deepcopy(PUBLISHED) | keys
    return {key: value for key, value in data.items() if value is not None}


def test_27b_has_the_published_sizes() -> None:
    """The 27b shape has the widths that qwen35.md section 1 derives, and attention in layers 3, 7, ..., 63."""
    c = config.shape("27b", layers="hybrid")
    assert (c.key_width, c.value_width, c.channels, c.q_width, c.kv_width) == (2048, 6144, 10240, 6144, 1024)
    assert [i for i, kind in enumerate(c.kinds) if kind == config.ATTN] == list(range(3, 64, 4))
    assert c.rotary == 64 and c.head_dim == 256 and c.vocab == 248320


@pytest.mark.parametrize(("layers", "attention"), [("attn", 64), ("gdn", 0), ("hybrid", 16)])
def test_kinds_of_layers(layers: str, attention: int) -> None:
    """attn and gdn are of one kind; of 64 hybrid layers every fourth is attention."""
    kinds = config.shape("mini64", layers=layers).kinds
    assert (len(kinds), kinds.count(config.ATTN)) == (64, attention)


def test_depth_takes_the_first_layers() -> None:
    """A depth of 5 is the first five layers of the whole shape."""
    assert config.shape("mini64", layers="hybrid", depth=5).kinds == config.shape("mini64", layers="hybrid").kinds[:5]


@pytest.mark.parametrize("name", config.SHAPES)
def test_named_shapes_tell_heads_apart(name: str) -> None:
    """In every named shape h // r and h mod n differ for some head, of values and of queries."""
    c = config.shape(name, layers="hybrid")
    for heads, groups in ((c.value_heads, c.key_heads), (c.heads, c.kv_heads)):
        assert [h // (heads // groups) for h in range(heads)] != [h % groups for h in range(heads)]


@pytest.mark.parametrize(
    ("name", "layers", "depth"), [("huge", "attn", None), ("tiny", "moe", None), ("tiny", "gdn", 0), ("tiny", "gdn", 5)]
)
def test_unknown_shapes_are_refused(name: str, layers: str, depth: int | None) -> None:
    """A shape, kind or depth that is not in the table is an error of the caller."""
    with pytest.raises(KernelError) as error:
        config.shape(name, layers=layers, depth=depth)
    assert error.value.exit_code == 2


def test_fixture_is_uneven() -> None:
    """The fixture's config is read as it stands: key and value heads of different sizes, and its own layer order."""
    c = config.from_folder(FIXTURE)
    assert (c.key_dim, c.value_dim, c.value_heads // c.key_heads, c.heads // c.kv_heads) == (16, 24, 3, 3)
    assert c.kinds == ("gdn", "gdn", "attn", "gdn") and c.rotary == 8 and not c.tied and c.eps == 1e-6


def test_multimodal_config_is_the_same_text_model() -> None:
    """A config whose text part lies under text_config gives the same model."""
    text = {key: value for key, value in PUBLISHED.items() if key not in ("model_type", "tie_word_embeddings")}
    outer = {"model_type": "qwen3_5", "tie_word_embeddings": False, "text_config": text, "vision_config": {"depth": 27}}
    assert config.from_json(outer, where="c") == config.from_json(PUBLISHED, where="c")


def test_older_keys_are_read() -> None:
    """rope_theta and partial_rotary_factor beside the sizes, and an interval for layer_types, say the same."""
    data = changed(rope_parameters=None, rope_theta=1e7, partial_rotary_factor=0.25, rope_scaling=None)
    data |= {"layer_types": None, "full_attention_interval": 3}
    assert config.from_json(data, where="c") == config.from_json(PUBLISHED, where="c")


ROPE = PUBLISHED["rope_parameters"]
REFUSED = [
    (changed(model_type="qwen3_next"), "unsupported architecture"),
    (changed(model_type=None), "unsupported architecture"),
    (changed(hidden_act="gelu"), "hidden_act"),
    (changed(attention_bias=True), "attention_bias"),
    (changed(quantization_config={"bits": 4}), "quantization_config"),
    (changed(rope_parameters=ROPE | {"rope_type": "yarn"}), "rope_type"),
    (changed(rope_parameters=ROPE | {"partial_rotary_factor": 0}), "partial_rotary_factor"),
    (changed(rope_parameters=ROPE | {"rope_theta": float("nan")}), "rope_theta"),
    (changed(rope_parameters=None), "partial_rotary_factor"),
    (changed(rope_parameters=[1]), "rope_parameters"),
    (changed(rms_norm_eps=True), "rms_norm_eps"),
    (changed(hidden_size=None), "hidden_size"),
    (changed(hidden_size=80.0), "hidden_size"),
    (changed(hidden_size=-1), "hidden_size"),
    (changed(vocab_size=1 << 21), "vocab_size"),
    (changed(num_hidden_layers=5000), "num_hidden_layers"),
    (changed(linear_num_value_heads=5), "value_heads 5 is not a multiple of key_heads 2"),
    (changed(num_key_value_heads=4), "heads 6 is not a multiple of kv_heads 4"),
    (changed(head_dim=20), "rotary size 5"),
    (changed(linear_conv_kernel_dim=1), "convolution"),
    (changed(layer_types=["linear_attention"] * 3), "layer_types"),
    (changed(layer_types=["linear_attention"] * 3 + ["sliding_attention"]), "layer_types"),
    (changed(layer_types=None), "full_attention_interval"),
    (changed(tie_word_embeddings=None), "tie_word_embeddings"),
    ([], "not a JSON object"),
]


@pytest.mark.parametrize(("data", "word"), REFUSED, ids=[word for _data, word in REFUSED])
def test_other_models_are_refused_by_key(data: object, word: str) -> None:
    """What the engine cannot run is refused in one line with the file, the key and what would do."""
    with pytest.raises(KernelError) as error:
        config.from_json(data, where="config.json")
    line = str(error.value)
    assert line.startswith("config.json: ") and word in line and "; " in line and "\n" not in line


@pytest.mark.parametrize(("content", "word"), [(None, "cannot be read"), (b"{", "not JSON"), (b"\xff{}", "not JSON")])
def test_bad_files_are_refused(tmp_path: Path, content: bytes | None, word: str) -> None:
    """A folder without config.json, or with one that is no JSON text, is named."""
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(KernelError, match=word):
        config.from_folder(tmp_path)
