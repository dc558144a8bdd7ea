"""python -m kernels graphs: single tokens and rows in turn, streamed or replayed as graphs; both must leave the same.

Behind 0, 5 and 250 tokens, so that rows also cross the end of a span of attention's sums, a script of every number of
rows, of marks and of rollbacks. After each word the outputs of the last token and those of the last rows are
read, which other graphs have run since; and a digest of every plane. Leaves also everything that was allocated, in
order: graphs add nothing. --leave launches is launches.i32, in which the forms differ.
"""

import argparse
import shlex
from typing import Any

import numpy as np

from kernels import artifact

from .forms import ROWS_MAX
from .models import Model, add_models, models, read, text
from .outputs import Input, digest, report, write_dump, write_inputs
from .schedules import scheduled, steps

STREAMED, GRAPHS = "streamed", "graphs"
SEEN, LAUNCHES = "seen", "launches"
PREFIXES = (0, 5, 250)  # tokens
SCRIPT = "one rows8 rows2 one rows3 one mark rows5 rollback2 rows4 one rows6 mark rows7 rollback0 rows7 rows8 one"
CAPACITY = 320


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels graphs", description=__doc__, allow_abbrev=False)
    add_models(parser)
    parser.add_argument("--form", required=True, choices=(STREAMED, GRAPHS))
    parser.add_argument("--prefix", type=int, choices=PREFIXES, help="one of them; all without it")
    parser.add_argument("--leave", default=SEEN, choices=(SEEN, LAUNCHES))
    options = parser.parse_args(argv)
    if options.out is None:
        parser.error("--out is needed")
    path = options.artifact or artifact.tree()
    opened, inputs, files = artifact.load(path), read(path), dict[str, dict[str, np.ndarray]]()
    for model in models(options):
        prefixes = PREFIXES if options.prefix is None else (options.prefix,)
        seen, made = run(opened, model, prefixes, graphs=options.form == GRAPHS)
        inputs.append(made)
        for file, array in seen.items():
            if (file == "launches.i32") == (options.leave == LAUNCHES):
                files.setdefault(file, {})[model.name] = array
    digests = write_dump(options.out, files)
    write_inputs(options.out, inputs)
    report(shlex.join(["python", "-m", "kernels", "graphs", *argv]), inputs, digests)
    return 0


def run(
    opened: artifact.Artifact, model: Model, prefixes: tuple[int, ...], *, graphs: bool
) -> tuple[dict[str, np.ndarray], Input]:
    """What the script left, by file, and the weights. Raises KernelError."""
    engine, device, weights = model.open(opened, capacity=CAPACITY, rows=ROWS_MAX, graphs=graphs)
    vocab, hidden, digests = engine.config.vocab, list[np.ndarray](), list[np.ndarray]()
    right = text(vocab, CAPACITY)
    for prefix in prefixes:
        _begin(engine, right[:prefix])
        rows = False
        for step in steps(SCRIPT, right[prefix:], vocab):
            scheduled(engine, step, ())
            rows = rows or step.verb == "rows"
            hidden += [engine.hidden()[None], *([engine.hidden_rows()] if rows else ())]
            logits = [engine.logits(), *([engine.logits_rows()] if rows else ())]
            digests += [digest(array) for array in (*logits, *engine.planes().values())]
    engine.close()
    found = {"h_out.f32": np.concatenate(hidden), "digests.u8": np.stack(digests)}
    found |= {"allocated.u32": np.array(device.allocated, np.uint32), "launches.i32": device.numbered()}
    return found, weights


def _begin(engine: Any, tokens: tuple[int, ...]) -> None:
    engine.reset()
    for start in range(0, len(tokens) - ROWS_MAX, ROWS_MAX):
        engine.forward_rows(tokens[start : start + ROWS_MAX])
    for token in tokens[engine.cursor :]:
        engine.forward(token)
