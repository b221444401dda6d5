{# The model has exactly as many rows as another relation. Fails with both counts. #}
{% test same_row_count(model, to) %}
with counts as (
    select
        (select count(*) from {{ model }}) as rows_here,
        (select count(*) from {{ to }}) as rows_there
)
select * from counts where rows_here <> rows_there
{% endtest %}
