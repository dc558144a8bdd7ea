"""Makes kernels/fixtures/hf_small: a small Hugging Face checkpoint with every parameter non-trivial, and what
transformers computes from it token by token. The only home of transformers and torch; nothing else needs them.

    python -m venv V && V/bin/pip install torch==2.13.0 transformers==5.24.0 numpy==2.4.6
    V/bin/python kernels/tools/make_fixture.py kernels/fixtures/hf_small

Embedding, qkv and k projections are small, so that the epsilons of the norms after them show in the outputs.
Sizes are uneven on purpose: key head size 16, value head size 24, three value heads a key head, three query heads a
key/value head over two of those, so that h // r differs from h mod n, rows that are no multiple of 32, and an attention
layer where no rule would put it.
"""

import hashlib
import json
import math
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

SEED, TOKENS, VOCAB, TAPS = 20, 24, 288, 4
KINDS = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
CONFIG = {
    "vocab_size": VOCAB, "hidden_size": 80, "intermediate_size": 112, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": TAPS,
    "layer_types": KINDS,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25,
        "mrope_interleaved": True, "mrope_section": [2, 1, 1],
    },
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "max_position_embeddings": 262144, "hidden_act": "silu",
    "attention_bias": False,
}  # fmt: skip
SMALLER = {"in_proj_qkv.weight": 0.04, "k_proj.weight": 0.005}


def fill(model: torch.nn.Module) -> None:
    """Gives every parameter a value that a formula can be told apart by."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("A_log"):
                value.uniform_(-3.0, 1.0)
            elif name.endswith("dt_bias"):
                value.uniform_(-1.0, 1.0)
            elif name.endswith("conv1d.weight"):
                value.normal_(0.0, 0.5)
            elif name.endswith("linear_attn.norm.weight"):
                value.uniform_(0.5, 1.5)
            elif value.dim() == 1:
                value.uniform_(-0.5, 0.5)
            elif name.endswith("embed_tokens.weight"):
                value.normal_(0.0, 0.005)
            else:
                size = next((size for end, size in SMALLER.items() if name.endswith(end)), 1.0)
                value.normal_(0.0, size / math.sqrt(value.shape[-1]))


def stepped(model: torch.nn.Module, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """(hidden states after the final norm, logits, planes by name) of one token after the other."""
    seen: list[torch.Tensor] = []
    model.model.norm.register_forward_hook(lambda _module, _args, output: seen.append(output[0, -1].clone()))
    logits: list[torch.Tensor] = []
    cache: Any = None
    with torch.no_grad():
        for token in tokens:
            result = model(input_ids=torch.tensor([[int(token)]]), cache=cache, use_cache=True)
            cache = result.past_key_values
            logits.append(result.logits[0, -1].clone())
    planes: dict[str, np.ndarray] = {}
    for i, kind in enumerate(KINDS):
        layer = cache.layers[i]
        if kind == "linear_attention":
            planes[f"layers.{i}.state"] = layer.recurrent_states[0][0].numpy()
            planes[f"layers.{i}.history"] = layer.conv_states[0][0][:, -(TAPS - 1) :].T.numpy()
        else:
            planes[f"layers.{i}.keys"] = layer.keys[0].transpose(0, 1).flatten(1).numpy()
            planes[f"layers.{i}.values"] = layer.values[0].transpose(0, 1).flatten(1).numpy()
    planes["cursor"] = np.array([len(tokens)], dtype=np.int32)
    return torch.stack(seen).numpy(), torch.stack(logits).numpy(), planes


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**CONFIG)).to(torch.float32).eval()
    fill(model)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    tokens = np.random.default_rng(SEED).integers(0, VOCAB, TOKENS).astype("<i4")
    tokens.tofile(folder / "tokens.i32")
    hidden, logits, planes = stepped(model, tokens)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from kernels.tools.outputs import write_dump

    dumped = {
        "h_out.f32": {"h_out": hidden},
        "logits.f32": {"logits": logits},
        "state.bin": planes,
    }
    write_dump(folder / "reference", dumped)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "origin.json")
    origin = {
        "command": "python kernels/tools/make_fixture.py kernels/fixtures/hf_small",
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__, "numpy": np.__version__,
        },
        "files": {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }  # fmt: skip
    (folder / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
