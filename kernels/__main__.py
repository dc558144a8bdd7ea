"""python -m kernels COMMAND: one call into a tool, and the only place that catches its errors."""

import importlib
import os
import sys
from collections.abc import Sequence

# command: (module with main(argv) -> exit code, what it does)
COMMANDS = {
    "build": ("kernels.tools.build", "compile and pack the artifact of a target"),
    "dump": ("kernels.tools.dump", "run an artifact over tokens and write every hidden state, logit and state plane"),
    "oracle": ("kernels.tools.oracle", "write what the float64 model, or a stored reference, says of the same run"),
    "lanes": ("kernels.tools.lanes", "run an artifact over many cases, for one lane to equal another"),
    "rows": ("kernels.tools.rows", "run kernels over M rows, by one launch or by M launches of one row"),
    "attn_m": ("kernels.tools.attn_m", "append M rows to the caches and let them attend, at once or one by one"),
    "causality": ("kernels.tools.causality", "the first or the last of M equal queries, which see other keys"),
    "bitmath": ("kernels.tools.bitmath", "digests of every function of bitmath.cuh over all inputs"),
    "weights": ("kernels.tools.weights", "digests of synthetic weights, as a device or as NumPy makes them"),
    "sanitize": ("kernels.tools.sanitize", "run a step of a CUDA artifact under compute-sanitizer"),
    "resources": ("kernels.tools.resources", "what each kernel of a CUDA artifact takes, and whether it spills"),
    "figures": ("kernels.tools.figures", "time a copy and the step of the whole 27B on the device"),
    "sweep": ("kernels.tools.sweep", "time the q4 product by every instance <R, M>, for every matrix of a model"),
    "r_table": ("kernels.tools.r_table", "the table of R that a record's sweep makes"),
    "mt": ("kernels.tools.mt", "M rows in one forward, or M single tokens, and all that is remembered afterwards"),
    "alone": ("kernels.tools.alone", "each row beside other rows, and beside junk"),
    "gemv_rows": ("kernels.tools.gemv_rows", "the q4 product for M rows by its instances, or by M launches of one row"),
    "together": ("kernels.tools.together", "kernels that do the work of several in one launch, and those apart"),
    "allocations": ("kernels.tools.allocations", "what an engine allocates while rows are left alone"),
    "rb": ("kernels.tools.rb", "try M rows, take them back, and run some of them again, against never trying"),
    "schedules": ("kernels.tools.schedules", "rows, marks and rollbacks in drawn orders, against tokens one by one"),
    "graphs": ("kernels.tools.graphs", "a script of all numbers of rows, streamed or replayed as graphs"),
    "spec_text": ("kernels.tools.spec_text", "greedy text with drafts of every kind, against text without any"),
    "generate": ("kernels.tools.generate", "continue a text greedily, with or without drafts from its own n-grams"),
    "old_artifact": ("kernels.tools.old_artifact", "open artifacts of earlier blocks, and say what their dumps hold"),
    "refusals": ("kernels.tools.refusals", "drive an artifact into one refusal"),
}
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def main(argv: Sequence[str]) -> int:
    """The exit code of a command: 0 done, 2 usage or bad input, 5 refused by the engine."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: python -m kernels COMMAND [options]    (COMMAND --help says which)\n")
        print("\n".join(f"  {name:14}{text}" for name, (_module, text) in COMMANDS.items()))
        return 0 if argv else USAGE
    if argv[0] not in COMMANDS:
        print(f"usage: no command {argv[0]!r}; use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE
    try:
        return int(importlib.import_module(COMMANDS[argv[0]][0]).main(list(argv[1:])))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        # an artifact brings error classes of its own, so an error of ours is known by its exit code
        if not hasattr(error, "exit_code"):
            raise
        reason = f" [{error.reason}]" if hasattr(error, "reason") else ""
        print(f"{type(error).__name__}: {error}{reason}", file=sys.stderr, flush=True)
        if getattr(error, "last_word", False):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
