"""Programs of others: what they run in environments of their own is not collected here."""

collect_ignore = ["llama_server.py"]
