"""The tools: one file a command."""
