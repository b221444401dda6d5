"""Statistical raters: of ratings, of products in choice sets, and those without a persona."""
