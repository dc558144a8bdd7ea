"""The landing protocol: staged builds, bitwise proofs, immutable baselines. It knows commands, files and bytes."""
