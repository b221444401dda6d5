{# The model and another relation have exactly the same combinations of the columns: nothing lost,
   nothing invented. Fails with the combinations that only one of them has, and which.

   Rows are compared where counts or sums of hashes under a value of the first column differ; a join
   of everything with everything would need both tables in memory. A difference is missed only if two
   sums of 64-bit hashes agree by chance. #}
{% test covers_exactly(model, to, columns) %}
{%- set names = columns | join(', ') %}
with sums as (
{%- for relation in [model, to] %}
    {{ 'union all' if not loop.first }}
    select {{ columns[0] }}, {{ 'true' if columns | length == 1 else '(count(*), sum(hash(' ~ names ~ ')))' }} as hashes
    from {{ relation }}
    group by {{ columns[0] }}
{%- endfor %}
),

suspects as (
    select {{ columns[0] }} from sums group by {{ columns[0] }} having count(*) < 2 or min(hashes) <> max(hashes)
),

here as (
    select {{ names }} from {{ model }} semi join suspects using ({{ columns[0] }})
),

there as (
    select {{ names }} from {{ to }} semi join suspects using ({{ columns[0] }})
)

select 'missing here' as problem, there.* from there anti join here using ({{ names }})
union all
select 'only here' as problem, here.* from here anti join there using ({{ names }})
{% endtest %}
