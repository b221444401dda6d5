{# Repairs of Amazon's records beside that of text. Arguments are names of columns. #}

{# Whether a title is a piece of a web page: the 2018 crawl put a tag that is never closed, a script
   or the end of an attribute where it did not find the title. #}
{% macro is_page_junk(title) -%}
coalesce(regexp_matches({{ title }}, '(?s)^\s*(<[a-zA-Z!/][^>]*$|<(script|style|img|input|link|meta)\b|var\s+\w+\s*=|function\s*\(|\(function|\.a-[a-z-]+\s*\{)|"\s*/?>\s*$'), false)
{%- endmacro %}

{# The title, made presentable; null if it is a piece of a page. #}
{% macro product_title(title) -%}
case when not {{ is_page_junk(title) }} then {{ clean_text(title) }} end
{%- endmacro %}

{# A department: the 2018 crawl has an image for some, whose name is in its `alt`. #}
{% macro department(column) -%}
{%- set name -%}
case when starts_with({{ column }}, '<img') then regexp_extract({{ column }}, 'alt="([^"]+)"', 1) else {{ column }} end
{%- endset -%}
{{ clean_text(name) }}
{%- endmacro %}

{# A price in USD from JSON text: 9.99, "9.99", "$1,009.99" or "from 9.99"; null for anything else
   (ranges, style sheets). #}
{% macro price(column) -%}
try_cast(replace(regexp_extract({{ column }}, '^"?(?:from )?\$?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"?$', 1), ',', '') as double)
{%- endmacro %}

{# Item ids of a list of ASINs, in its order, each once; what is no ASIN is left out. #}
{% macro asin_list(column) -%}
list_transform(
    [list_filter({{ column }}, lambda asin_a: asin_a is not null and regexp_matches(asin_a, '^[0-9A-Z]{10}$'))],
    lambda asin_l: list_transform(
        list_filter(asin_l, lambda asin_b, asin_i: list_position(asin_l, asin_b) = asin_i), lambda asin_c: 'asin:' || asin_c
    )
)[1]
{%- endmacro %}

{# Paragraphs as one text; null if nothing is left. #}
{% macro paragraphs(column) -%}
nullif(array_to_string({{ clean_texts(column) }}, ' '), '')
{%- endmacro %}

{# Of a line such as 'Harbor House; 2nd edition (May 2, 2006)': the name … #}
{% macro publisher_name(column) -%}
nullif(trim(regexp_replace({{ column }}, '\s*(;.*|\([^()]*\d{4}\)\s*)$', '')), '')
{%- endmacro %}

{# … and the date in brackets at its end. #}
{% macro publisher_date(column) -%}
nullif(regexp_extract({{ column }}, '\(([^()]*\b\d{4})\)\s*$', 1), '')
{%- endmacro %}

{# A date in words ('May 2, 2006'); null for one without a day. #}
{% macro day_in_words(column) -%}
cast(coalesce(try_strptime({{ column }}, '%B %d, %Y'), try_strptime({{ column }}, '%b %d, %Y')) as date)
{%- endmacro %}

{# The year at the end of a date in words, or of a year alone. #}
{% macro year_in_words(column) -%}
case
    when try_cast(regexp_extract({{ column }}, '\b(\d{4})\s*$', 1) as bigint) between 1400 and 2100
        then cast(regexp_extract({{ column }}, '\b(\d{4})\s*$', 1) as bigint)
end
{%- endmacro %}
