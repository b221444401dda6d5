"""Language models: engines, what a reply may be, and every answer kept by key."""
