{# Lowest and highest rating of a scale written as in the tables, such as '0.5-5'. #}
{% macro scale_lowest(column) -%}
cast(split_part({{ column }}, '-', 1) as double)
{%- endmacro %}

{% macro scale_highest(column) -%}
cast(split_part({{ column }}, '-', 2) as double)
{%- endmacro %}

{# Number of a user's `count` interactions that a share gives: rounded down, but at least one, so that
   every user who takes part in the split is in each part that is asked for; nothing for share 0.
   The share is written as a decimal, because 100 * 0.29 is 28.999… in floating point. #}
{% macro part_size(count, share) -%}
{%- if share | float > 0 -%}
greatest(1, cast(floor({{ count }} * {{ '%.6f' | format(share | float) }}::decimal(9, 6)) as bigint))
{%- else -%}
0
{%- endif -%}
{%- endmacro %}

{# A rating taken from its scale to 1-5, ends to ends, as pipelines.scales.rescale does it. #}
{% macro on_five(rating, scale) -%}
(({{ rating }} - {{ scale_lowest(scale) }}) * 4.0 / ({{ scale_highest(scale) }} - {{ scale_lowest(scale) }}) + 1.0)
{%- endmacro %}

{# A mean to 6 decimals: the last bits of a sum depend on the order in which threads add, and a
   version is the hash of the bytes. #}
{% macro stable(expression) -%}
round({{ expression }}, 6)
{%- endmacro %}

{# Stars of a recommendation, by the minutes played: below 2 hours, up to which Steam refunds a game,
   from 20 hours on, and between; the middle ones where they are not known. A long playtime does not
   make a game that is not recommended a good one. #}
{% macro verdict(recommended, minutes) -%}
cast(case
    when {{ minutes }} < 2 * 60 then case when {{ recommended }} then 3 else 1 end
    when {{ minutes }} >= 20 * 60 then case when {{ recommended }} then 5 else 2 end
    else case when {{ recommended }} then 4 else 2 end
end as double)
{%- endmacro %}
