"""The state planes: which there are, how large, in which order."""

from kernels.engine import config, state


def test_27b_state_is_149_mib() -> None:
    """S of 27B takes 150,994,944 bytes and the convolution's history 5,898,240, as qwen35.md section 1 counts them."""
    planes = list(state.planes(config.shape("27b", layers="hybrid"), 100))
    assert sum(plane.bytes for plane in planes if plane.name.endswith(".state")) == 150_994_944
    assert sum(plane.bytes for plane in planes if plane.name.endswith(".history")) == 5_898_240
    assert sum(plane.bytes for plane in planes if plane.rows) == 100 * 128 * 1024


def test_planes_are_in_layer_order() -> None:
    """A GDN layer has state and history, an attention layer keys and values, in the order of the layers."""
    names = [plane.name for plane in state.planes(config.shape("tiny", layers="hybrid"), 7)]
    gdn = [f"layers.{i}.{name}" for i in range(3) for name in ("state", "history")]
    assert names == [*gdn, "layers.3.keys", "layers.3.values"]


def test_only_positions_grow() -> None:
    """The capacity moves the rows planes and attention's scratch, and nothing else."""
    c = config.shape("tiny", layers="hybrid")
    small, large = ([*state.planes(c, size), *state.scratch(c, size)] for size in (1, 1000))
    grown = {a.name for a, b in zip(small, large, strict=True) if a.bytes != b.bytes}
    assert grown == {"layers.3.keys", "layers.3.values", "scores"}


def test_scratch_has_room_for_a_chunk_more_than_is_visible() -> None:
    """At the last position attention may use the visible length and 256 floats more, a head."""
    assert state.scratch_stride(1) == 257 and state.scratch_stride(4096) == 4352
