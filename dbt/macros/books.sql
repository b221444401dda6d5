{# Whether a category, by file name, is one of books. #}
{% macro is_book(column) -%}
{{ column }} in ({% for name in var('books_categories') %}'{{ name }}'{{ ', ' if not loop.last }}{% endfor %})
{%- endmacro %}

{# Levels of a path that say nothing about a book. #}
{% macro book_genres(column) -%}
list_sort(list_distinct(list_filter({{ column }}, lambda genre_g: genre_g not in ('Books', 'Kindle Store', 'Kindle eBooks'))))
{%- endmacro %}

{# Books that a category must have: `books_min_category_size` in a catalogue of
   `books_full_catalogue` books or more, in proportion to its size in a smaller one, one at least. #}
{% macro least_category(books) -%}
greatest(1, cast(ceil({{ var('books_min_category_size') | int }} * least(1.0, {{ books }} / {{ var('books_full_catalogue') | float }})) as bigint))
{%- endmacro %}
