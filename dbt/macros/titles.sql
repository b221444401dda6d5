{# MovieLens titles: 'City of Lost Children, The (Cité des enfants perdus, La) (1995)' is the title,
   its other titles in brackets, and the year. Arguments are column names of cleaned text. #}

{# The year of '… (1995)', '… (2006–2007)' (its first) or '… (2009– )'; null if there is none or it
   can't be a year of film. A year without brackets is part of the title ('1984', '2012'). #}
{% macro title_year(column) -%}
case
    when try_cast(regexp_extract({{ column }}, {{ _year_pattern() }}, 1) as bigint) between 1870 and 2100
        then cast(regexp_extract({{ column }}, {{ _year_pattern() }}, 1) as bigint)
end
{%- endmacro %}

{% macro _year_pattern() -%}
'\(\s*(\d{4})\s*(?:[-–—]\s*(?:\d{4})?\s*)?\)+$'
{%- endmacro %}

{# The title without its year; as it is where there is no year, or where nothing else is left. #}
{% macro without_year(column) -%}
case
    when {{ title_year(column) }} is null then {{ column }}
    else coalesce(nullif(rtrim(regexp_replace({{ column }}, {{ _year_pattern() }}, '')), ''), {{ column }})
end
{%- endmacro %}

{# One or more bracketed groups at the end, each after white space (not 'Frontière(s)') and each
   with at most one level of brackets inside. #}
{% macro _groups_pattern() -%}
'((?:\s+\((?:[^()]|\([^()]*\))*\))+)$'
{%- endmacro %}

{# Whether the brackets at the end hold other titles: they don't in 'Birdman: Or (The Unexpected
   Virtue of Ignorance)', where the text before them is unfinished, and four digits that were not
   taken for the year ('(0042)') are no title. #}
{% macro _has_alternatives(column) -%}
regexp_matches({{ column }}, {{ _groups_pattern() }})
    and not regexp_matches(regexp_replace({{ column }}, {{ _groups_pattern() }}, ''), '(?i)(:|\bor|\band|&|,)$')
    and not regexp_matches({{ column }}, '\(\d{4}\)$')
{%- endmacro %}

{# The main title, article first. #}
{% macro main_title(column) -%}
{%- set main -%}
case when {{ _has_alternatives(column) }} then regexp_replace({{ column }}, {{ _groups_pattern() }}, '') else {{ column }} end
{%- endset -%}
{{ article_first(main) }}
{%- endmacro %}

{# The other titles, article first, without 'a.k.a.', without the main title; may be empty. #}
{% macro alternative_titles(column) -%}
case
    when {{ _has_alternatives(column) }} then list_filter(
        list_transform(
            regexp_extract_all(
                regexp_extract({{ column }}, {{ _groups_pattern() }}, 1), '\(((?:[^()]|\([^()]*\))*)\)', 1
            ),
            lambda title_a: {{ article_first("trim(regexp_replace(title_a, '(?i)^(a\\.k\\.a\\.?|aka)\\s+', ''))") }}
        ),
        lambda title_b: title_b <> ''
    )
    else []
end
{%- endmacro %}

{# 'Matrix, The' -> 'The Matrix', 'Avventura, L\'' -> 'L\'Avventura'. Articles of English, French,
   German, Spanish, Italian, Portuguese, Dutch and the Scandinavian languages, capitalised as the
   source writes them. #}
{% macro article_first(expression) -%}
regexp_replace(
    regexp_replace(
        {{ expression }},
        '^(.+),\s+(The|An?|Le|La|Les|Une?|Des|Der|Die|Das|Den|Det|De[nt]?|Eine?|E[nt]|Ett|El|L[ao]s|Lo|Un[ao]s?|Il|I|Gli|Os?|As|Uma?|Het|Een)$',
        '\2 \1'
    ),
    '^(.+),\s+(L[''’])$', '\2\1'
)
{%- endmacro %}
