{# Every value that is not null lies within its column's range, both ends included:
   `ranges: {column: [lowest, highest]}`; null in place of an end leaves it open.
   Fails with one row per column and value, and how often it occurs. #}
{% test within_ranges(model, ranges) %}
{%- for column, ends in ranges.items() %}
select '{{ column }}' as column_name, cast({{ column }} as varchar) as value, count(*) as times
from {{ model }}
where {{ column }} is not null and (
    {%- if ends[0] is not none %} {{ column }} < {{ ends[0] }}{% endif %}
    {%- if ends[0] is not none and ends[1] is not none %} or{% endif %}
    {%- if ends[1] is not none %} {{ column }} > {{ ends[1] }}{% endif %}
)
group by {{ column }}
{%- if not loop.last %}
union all
{%- endif %}
{%- endfor %}
{% endtest %}
