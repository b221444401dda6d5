"""The assets, by stage."""
