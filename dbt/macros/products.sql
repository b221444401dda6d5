{# Whether a category, by file name, is one of products: books and films are other domains. #}
{% macro is_product(column) -%}
{{ column }} not in ('Books', 'Kindle_Store', 'Movies_and_TV', '')
{%- endmacro %}

{# The levels before the first one that can't be a category's name: in the 2018 files the selling
   points of a product follow its categories in the same list, and mark-up that ended the list on
   the page. #}
{% macro named_levels(column) -%}
list_transform(
    [coalesce(list_position(list_transform(
        {{ column }}, lambda level_l: length(level_l) > 64 or regexp_matches(level_l, '[<>{}\[\]]|://|[.!?;:]$')
    ), true), 0)],
    lambda level_first: case when level_first = 0 then {{ column }} else {{ column }}[:level_first - 1] end
)[1]
{%- endmacro %}

{# The name of a file's category as people write it: 'Arts_Crafts_and_Sewing'. #}
{% macro department_of_file(column) -%}
replace(replace({{ column }}, '_and_', ' & '), '_', ' ')
{%- endmacro %}
