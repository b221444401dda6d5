{# The sum of the column equals the number of rows of another relation (where `condition` holds):
   every row is counted once. #}
{% test totals_equal(model, column_name, to, condition='true') %}
with totals as (
    select
        (select coalesce(sum({{ column_name }}), 0) from {{ model }}) as counted,
        (select count(*) from {{ to }} where {{ condition }}) as expected
)
select * from totals where counted <> expected
{% endtest %}
