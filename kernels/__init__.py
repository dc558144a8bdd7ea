"""Kestrel, the subject: a bit-exact hybrid decode engine. `python -m kernels COMMAND` is its one program."""
