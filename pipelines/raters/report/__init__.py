"""Evaluation of raters on held-out ratings of people, and summaries of scores."""
